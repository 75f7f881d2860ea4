"""What is wrong with a call is said before anything is sent, and nothing crashes."""

from __future__ import annotations

import array
import pickle
from typing import Any, Iterator

import ml_dtypes
import numpy as np
import pytest

import symm
from ranks import address, on_threads, unique_name


@pytest.fixture(scope="module")
def comm() -> Iterator[symm.Comm]:
    with symm.Comm(address(), 0, 1, name=unique_name(), timeout=30) as comm:
        yield comm
        # Whatever was refused, it still works.
        assert comm.all_reduce(np.ones(3)).tolist() == [1.0, 1.0, 1.0]


def read_only(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    x.flags.writeable = False
    return x


def unaligned() -> np.ndarray[Any, Any]:
    return np.zeros(17, np.uint8)[1:].view(np.float32)


class Gpu:
    """What looks like an array on a GPU."""

    dtype = np.dtype(np.float32)

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4,),
            "typestr": "<f4",
            "data": (0x7F0000000000, False),
            "version": 3,
            "strides": None,
            **interface,
        }


class Broken:
    def __init__(self, name: str, value: Any) -> None:
        setattr(self, name, value)


F4 = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        (F4, np.zeros(4, np.float64), "out has dtype float64 where x has float32"),
        (F4, np.zeros(4, ml_dtypes.bfloat16), "out has dtype bfloat16 where x has float32"),
        (F4, np.zeros(5, np.float32), r"out has shape \(5,\) where x has \(4,\)"),
        (F4, np.zeros((2, 2), np.float32), r"out has shape \(2, 2\) where x has \(4,\)"),
        (
            np.zeros((), np.float32),
            np.zeros(1, np.float32),
            r"out has shape \(1,\) where x has \(\)",
        ),
        (np.zeros(8, np.float32)[::2], None, "x is not contiguous"),
        (np.zeros((3, 3), np.float32).T, None, "x is not contiguous"),
        (np.zeros((3, 3), np.float32, order="F"), None, "x is not contiguous"),
        (np.broadcast_to(np.float32(1), (4,)), None, "x is not contiguous"),
        (np.zeros(4, np.float32)[::-1], None, "x is not contiguous"),
        (F4, np.zeros(8, np.float32)[::2], "out is not contiguous"),
        (F4, read_only(np.zeros(4, np.float32)), "out is read-only"),
        (np.zeros(4, ">f4"), None, "byte order"),
        (np.zeros(4, ">i8"), None, "byte order"),
        (np.zeros(4, object), None, "dtype object"),
        (np.zeros(4, bool), None, "dtype bool"),
        (np.zeros(4, np.complex64), None, "dtype complex64"),
        (np.zeros(4, np.int16), None, "dtype int16"),
        (np.zeros(4, np.longdouble), None, "dtype"),
        (np.zeros(4, "M8[s]"), None, "dtype datetime64"),
        (np.zeros(4, "U3"), None, "dtype <U3"),
        (np.zeros(4, "V2"), None, r"dtype \|V2"),
        (np.zeros(4, [("a", "<f4")]), None, "dtype"),
        (np.zeros(4, ml_dtypes.float8_e4m3), None, "dtype float8_e4m3;"),
        (np.zeros(4, ml_dtypes.float8_e4m3b11fnuz), None, "dtype float8_e4m3b11fnuz"),
        (np.zeros(4, ml_dtypes.int4), None, "dtype int4"),
        (unaligned(), None, "align"),
        (F4, unaligned(), "align"),
        (np.ma.masked_array(np.zeros(4, np.float32), mask=[0, 1, 0, 1]), None, "masked array"),
        (Gpu(), None, "is on a GPU, and the communicator works on the CPU"),
        (F4, Gpu(), "is on a GPU, and the communicator works on the CPU"),
        (Gpu(mask=Gpu()), None, "mask"),
        (
            Broken("__array_interface__", {"shape": (4,), "typestr": "<f4", "version": 3}),
            None,
            "no plain address",
        ),
        (
            Broken("__array_interface__", {**F4.__array_interface__, "shape": (-4,)}),
            None,
            r"shape \(-4,\)",
        ),
        (
            Broken("__array_interface__", {**F4.__array_interface__, "shape": (2**32, 2**32)}),
            None,
            r"shape \(4294967296, 4294967296\)",
        ),
        (bytes(4), None, "read-only buffer"),
        (memoryview(array.array("d", [1, 2, 3, 4]))[::2], np.zeros(2), "x is not contiguous"),
        (array.array("h", [1, 2]), None, "buffer format"),
    ],
)
def test_all_reduce_refuses(comm: symm.Comm, x: Any, out: Any, message: str) -> None:
    if out is None:
        out = (
            np.zeros(np.shape(x), x.dtype) if isinstance(x, np.ndarray) else np.zeros(4, np.float32)
        )
    with pytest.raises(symm.InvalidArgumentError, match=message) as raised:
        comm.all_reduce(x, out=out)
    assert isinstance(raised.value, ValueError)
    assert raised.value.status == -1 and raised.value.status_name == "SYMM_INVALID_ARGUMENT"
    assert "all_reduce" in str(raised.value)


@pytest.mark.parametrize(
    "x", [None, 3, 3.0, "abc", [1.0, 2.0], object(), np.float32(3), dict(), np.ndarray, Gpu]
)
def test_all_reduce_of_what_is_no_array(comm: symm.Comm, x: Any) -> None:
    with pytest.raises((TypeError, symm.InvalidArgumentError)):
        comm.all_reduce(x)
    if x is not None:
        with pytest.raises((TypeError, symm.InvalidArgumentError)):
            comm.all_reduce(F4, out=x)


@pytest.mark.parametrize("shift", [4, -4, 12])
def test_overlap_is_refused(comm: symm.Comm, shift: int) -> None:
    room = np.zeros(12, np.float32)
    with pytest.raises(symm.InvalidArgumentError, match="overlap"):
        comm.all_reduce(room[4:8], out=room[4 + shift // 4 : 8 + shift // 4])


@pytest.mark.parametrize("value", [Exception("own"), KeyError("own")])
def test_an_arrays_own_exception_arrives(comm: symm.Comm, value: Exception) -> None:
    class Raises:
        @property
        def __array_interface__(self) -> Any:
            raise value

    with pytest.raises(type(value), match="own"):
        comm.all_reduce(Raises())


@pytest.mark.parametrize("address", [-1, 2**64, "x", None, (1, 2)])
def test_nonsense_in_an_array_interface(comm: symm.Comm, address: Any) -> None:
    x = Broken(
        "__array_interface__",
        {"shape": (0,), "typestr": "<f4", "data": (address, False), "version": 3},
    )
    try:
        comm.all_reduce(x, out=np.zeros(0, np.float32))
    except (TypeError, ValueError, OverflowError):
        pass


@pytest.mark.parametrize("op", ["SUM", "mean", "", "sum\0", "add"])
def test_unknown_op(comm: symm.Comm, op: str) -> None:
    with pytest.raises(
        symm.InvalidArgumentError, match="known are 'sum', 'prod', 'max', 'min' and 'avg'"
    ):
        comm.all_reduce(F4, op=op)
    with comm.window(4) as window, pytest.raises(symm.InvalidArgumentError, match="known are"):
        window.all_reduce(op=op)
    with pytest.raises(TypeError, match="op must be a str"):
        comm.all_reduce(F4, op=0)


@pytest.mark.parametrize("stream", [0, 1, object(), "s"])
def test_a_stream_on_the_cpu(comm: symm.Comm, stream: Any) -> None:
    for call in (
        lambda: comm.all_reduce(F4, stream=stream),
        lambda: comm.barrier(stream),
        lambda: comm.window(4).all_reduce(stream=stream),
    ):
        with pytest.raises(symm.InvalidArgumentError, match="which has none"):
            call()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, 0, 1), {}, TypeError, "address must be a str"),
        (("nowhere", 0, 1), {}, symm.InvalidArgumentError, "nowhere"),
        (("a", "0", 1), {}, TypeError, "integer"),
        (("tcp://127.0.0.1:1", 2**31, 1), {}, symm.InvalidArgumentError, "32-bit"),
        (("tcp://127.0.0.1:1", 1, 1), {}, symm.InvalidArgumentError, "rank"),
        (("tcp://127.0.0.1:1", 0, 0), {}, symm.InvalidArgumentError, "size"),
        (("tcp://127.0.0.1:1", 0, 1, "gpu"), {}, symm.InvalidArgumentError, "'gpu'"),
        (("tcp://127.0.0.1:1", 0, 1, -1), {}, symm.InvalidArgumentError, "device -1"),
        (("tcp://127.0.0.1:1", 0, 1, True), {}, symm.InvalidArgumentError, "True"),
        (("tcp://127.0.0.1:1", 0, 1), {"timeout": 0}, symm.InvalidArgumentError, "timeout 0"),
        (
            ("tcp://127.0.0.1:1", 0, 1),
            {"timeout": float("nan")},
            symm.InvalidArgumentError,
            "timeout nan",
        ),
        (
            ("tcp://127.0.0.1:1", 0, 1),
            {"wait_timeout": -1},
            symm.InvalidArgumentError,
            "wait_timeout -1",
        ),
        (
            ("tcp://127.0.0.1:1", 0, 1),
            {"wait_timeout": 1e10},
            symm.InvalidArgumentError,
            "wait_timeout",
        ),
        (
            ("tcp://127.0.0.1:1", 0, 1),
            {"scratch_bytes": -1},
            symm.InvalidArgumentError,
            "scratch_bytes -1",
        ),
        (("tcp://127.0.0.1:1", 0, 1), {"name": "a\0b"}, symm.InvalidArgumentError, "NUL"),
        (("tcp://127.0.0.1:1", 0, 1), {"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_comm_refuses(arguments: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        symm.Comm(*arguments, **options)


@pytest.mark.parametrize(
    "dtype",
    ["float", "float128", "complex64", "", bool, np.int16, np.dtype(">f4"), None, 7, object],
)
def test_window_dtypes_that_are_none(comm: symm.Comm, dtype: Any) -> None:
    with pytest.raises(symm.InvalidArgumentError, match="known are int8"):
        comm.window(4, dtype)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float8_e4m3fn", "float8_e4m3"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3"),
        (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
        (np.float32, "float32"),
        (np.dtype("int64"), "int64"),
        (np.longlong, "int64"),
        (float, "float64"),
        (int, "int64"),
    ],
)
def test_window_dtypes_of_other_libraries(comm: symm.Comm, dtype: Any, name: str) -> None:
    with comm.window(4, dtype) as window:
        assert window.dtype == name and window.nbytes == 4 * window.local.itemsize


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        (-1, ValueError),
        ((2, -3), ValueError),
        ("4", TypeError),
        (2.5, TypeError),
        ((2.5,), TypeError),
        (2**62, ValueError),
    ],
)
def test_window_shapes_that_are_none(comm: symm.Comm, shape: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        comm.window(shape)


def test_more_memory_than_there_is(comm: symm.Comm) -> None:
    with pytest.raises((symm.OutOfMemoryError, symm.InvalidArgumentError, symm.SystemCallError)):
        comm.window(2**58)


@pytest.mark.parametrize("shape", [(), 0, (3, 0, 2), (1,), (2, 3, 4)])
def test_window_shapes(comm: symm.Comm, shape: Any) -> None:
    with comm.window(shape, "float64") as window:
        expected = np.zeros(shape)
        assert window.shape == expected.shape and window.nbytes == expected.nbytes
        assert window.numpy().shape == expected.shape
        window.numpy()[...] = 5
        assert (window.all_reduce().numpy() == 5).all()
        assert window.all_reduce(expected) is expected
        assert (expected == 5).all()


@pytest.mark.parametrize(
    ("offset", "count"),
    [(-1, None), (0, -1), (0, 11), (11, None), (5, 6), (2**64, 1), (0, 2**64), (2**63, 2**63)],
)
def test_pieces_outside_of_a_window(comm: symm.Comm, offset: int, count: int | None) -> None:
    with (
        comm.window(10) as window,
        pytest.raises(symm.InvalidArgumentError, match="of a window of 10 elements"),
    ):
        window.all_reduce(offset=offset, count=count)


def test_pieces_of_a_window(comm: symm.Comm) -> None:
    with comm.window(10) as window:
        window.numpy()[:] = np.arange(10)
        piece = window.all_reduce(offset=3, count=4)
        assert piece.shape == (4,) and piece.numpy().tolist() == [3, 4, 5, 6]
        assert np.shares_memory(piece.numpy(), window.numpy())
        assert window.all_reduce(np.zeros(3, np.float32), offset=7).tolist() == [7, 8, 9]
        assert window.all_reduce(count=0).shape == (0,)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(9, np.float32), "out has 9 elements where 10 are reduced"),
        (np.zeros(10), "out has dtype float64 where the window has float32"),
        (np.zeros(20, np.float32)[::2], "out is not contiguous"),
        (read_only(np.zeros(10, np.float32)), "out is read-only"),
        (Gpu(shape=(10,)), "is on a GPU"),
    ],
)
def test_window_all_reduce_refuses(comm: symm.Comm, out: Any, message: str) -> None:
    with comm.window(10) as window:
        with pytest.raises(symm.InvalidArgumentError, match=message):
            window.all_reduce(out)
        inside = window.numpy()[:5]
        with pytest.raises(symm.InvalidArgumentError, match="overlap"):
            window.all_reduce(inside, offset=2, count=5)


@pytest.mark.parametrize("rank", [1, -2, 10**30])
def test_ranks_that_are_none(comm: symm.Comm, rank: int) -> None:
    with comm.window(1) as window:
        with pytest.raises(IndexError):
            window[rank]
        assert len(list(window)) == len(window) == 1
        assert window[-1].rank == 0
        with pytest.raises(TypeError):
            window["0"]  # type: ignore[index]


def test_register_refuses(comm: symm.Comm) -> None:
    with pytest.raises(symm.UnsupportedError, match="memfd|shared"):
        comm.register(np.zeros(4096, np.float32))
    for x, message in (
        (read_only(np.zeros(4, np.float32)), "read-only"),
        (np.zeros(8, np.float32)[::2], "contiguous"),
        (Gpu(), "not on the communicator's device"),
    ):
        with pytest.raises(symm.InvalidArgumentError, match=message):
            comm.register(x)
    with pytest.raises(TypeError):
        comm.register("memory")


def test_everything_raises_after_close() -> None:
    comm = symm.Comm(address(), 0, 1, name=unique_name())
    window = comm.window(4)
    assert not comm.closed and not window.closed
    for handle in (window, comm):
        handle.close()
        handle.close()
        assert handle.closed and "closed" in repr(handle)
    calls = [
        lambda: comm.all_reduce(F4),
        lambda: comm.all_reduce(F4, out=F4),
        lambda: comm.barrier(),
        lambda: comm.split(0),
        lambda: comm.window(4),
        lambda: comm.register(F4),
        lambda: comm.check(),
        lambda: comm.abort(),
        lambda: comm.report(),
        lambda: comm.plan(4, "float32"),
        lambda: comm.nccl,
        lambda: window.all_reduce(),
        lambda: window[0],
        lambda: window.local,
        lambda: window.numpy(),
    ]
    for call in calls:
        with pytest.raises(symm.InvalidArgumentError, match="closed"):
            call()
    assert (comm.rank, comm.size, comm.device) == (0, 1, "cpu")


def test_handles_cannot_be_pickled_or_copied(comm: symm.Comm) -> None:
    import copy

    with comm.window(4) as window:
        for handle in (comm, window):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickle.dumps(handle)
            with pytest.raises(TypeError, match="cannot be pickled"):
                copy.copy(handle)


def test_errors_can_be_pickled(comm: symm.Comm) -> None:
    with pytest.raises(symm.InvalidArgumentError) as raised:
        comm.all_reduce(F4, op="x")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is symm.InvalidArgumentError
    assert (str(again), again.status, again.rank) == (str(raised.value), -1, None)


def test_one_rank_with_a_bad_argument_fails_all() -> None:
    """In collective set-up nobody waits for a rank whose call never came to be."""

    def body(comm: symm.Comm) -> None:
        bad = comm.rank == 1
        for call, error in (
            (lambda: comm.window(4, "nonsense" if bad else "float32"), symm.InvalidArgumentError),
            (lambda: comm.window("x" if bad else 4), TypeError),
            (lambda: comm.split("red" if bad else 0), TypeError),
            (lambda: comm.split(-7 if bad else 0), symm.InvalidArgumentError),
            (lambda: comm.register(None if bad else np.zeros(4, np.float32)), TypeError),
        ):
            with pytest.raises(error if bad else symm.SymmError):
                call()
        comm.check()
        comm.barrier()

    on_threads(2, body, timeout=20, wait_timeout=20)


def test_views_and_windows_are_not_made_by_hand(comm: symm.Comm) -> None:
    for kind in (symm.Window, symm.View):
        with pytest.raises(TypeError, match="is made by"):
            kind()
    with comm.window(4) as window:
        for thing in (window, window[0]):
            for name in ("shape", "rank", "dtype", "nothing"):
                with pytest.raises(AttributeError):
                    setattr(thing, name, 1)
