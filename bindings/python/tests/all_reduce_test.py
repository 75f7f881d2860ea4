"""Results, bit for bit, of every dtype, op and kind of memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
import symm
from ranks import on_processes, on_threads

SIZES = (1, 2, 3)


def operands(dtype: str, shape: Any, size: int) -> list[np.ndarray[Any, Any]]:
    return [reference.operand(reference.DTYPES[dtype], shape, [rank, 7]) for rank in range(size)]


def assert_same(got: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", reference.OPS)
@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_equals_reference_in_rank_order(dtype: str, op: str, size: int) -> None:
    inputs = operands(dtype, (5, 41), size)
    expected = reference.reduce(inputs, op)

    def body(comm: symm.Comm) -> None:
        x = inputs[comm.rank].copy()
        new = comm.all_reduce(x, op=op)
        assert type(new) is np.ndarray and new is not x
        assert_same(new, expected)
        assert_same(x, inputs[comm.rank])

        out = np.empty_like(x)
        assert comm.all_reduce(x, out, op) is out
        assert_same(out, expected)

        window = comm.window(x.shape, dtype)
        window.numpy()[...] = x
        assert window.all_reduce(out=np.empty_like(x), op=op).tobytes() == expected.tobytes()
        view = window.all_reduce(op=op)
        assert_same(view.numpy(), expected)

        assert comm.all_reduce(x, out=x, op=op) is x
        assert_same(x, expected)

    on_threads(size, body)


@settings(max_examples=60)
@given(
    dtype=st.sampled_from(list(reference.DTYPES)),
    op=st.sampled_from(reference.OPS),
    shape=st.lists(st.integers(0, 6), max_size=4).map(tuple),
    offset=st.integers(0, 7),
    in_place=st.booleans(),
)
def test_any_shape_and_alignment(
    dtype: str, op: str, shape: tuple[int, ...], offset: int, in_place: bool
) -> None:
    inputs = operands(dtype, shape, 2)
    expected = reference.reduce(inputs, op)
    itemsize = expected.dtype.itemsize

    def body(comm: symm.Comm) -> None:
        # Elements start anywhere in memory that is their own multiple.
        room = np.zeros(expected.nbytes + 64 * itemsize, np.uint8)
        place = (
            room[offset * itemsize : offset * itemsize + expected.nbytes]
            .view(expected.dtype)
            .reshape(shape)
        )
        place[...] = inputs[comm.rank]
        out = place if in_place else np.empty_like(place)
        assert comm.all_reduce(place, out, op) is out
        assert_same(out, expected)
        assert not room[offset * itemsize + expected.nbytes :].any()

    on_threads(2, body)


def test_between_processes() -> None:
    printed = on_processes(
        3,
        """
        import numpy as np
        with symm.Comm(address, rank, size, timeout=60, name="processes") as comm:
            x = np.arange(100000, dtype=np.float32) * (rank + 1)
            assert (comm.all_reduce(x) == np.arange(100000, dtype=np.float32) * 6).all()
            with comm.window((10, 10), "float64") as window:
                window.numpy()[...] = rank + 1
                comm.barrier()
                assert [w.numpy()[3, 4] for w in window] == [1.0, 2.0, 3.0]
                comm.barrier()
                assert (window.all_reduce(op="max").numpy() == 3.0).all()
        print("ok")
        """,
    )
    assert printed == ["ok\n"] * 3
