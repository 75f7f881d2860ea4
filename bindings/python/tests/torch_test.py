"""PyTorch tensors of the CPU."""

from __future__ import annotations

from typing import Any, Iterator

import pytest

import symm
from ranks import address, on_threads, unique_name

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: SYMM_TEST_TORCH=1 installs it"
)

DTYPES = [
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
]


@pytest.fixture(scope="module")
def comm() -> Iterator[symm.Comm]:
    with symm.Comm(address(), 0, 1, name=unique_name(), timeout=30) as comm:
        yield comm


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3)])
def test_every_dtype(comm: symm.Comm, name: str, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape).mul(3).to(getattr(torch, name))
    result = comm.all_reduce(x)
    assert type(result) is torch.Tensor and result.dtype == x.dtype and result.shape == x.shape
    assert result.float().equal(x.float())
    out = torch.zeros(shape).to(x.dtype)
    assert comm.all_reduce(x, out=out) is out
    assert out.float().equal(x.float())
    assert comm.all_reduce(out, out=out) is out
    with comm.window(shape, x.dtype) as window:
        mine = window.torch()
        assert mine.dtype == x.dtype and mine.shape == x.shape
        mine.copy_(x)
        assert window.all_reduce(out) is out
        assert window.all_reduce().torch().float().equal(x.float())


def test_between_ranks_and_libraries() -> None:
    import numpy as np

    def body(comm: symm.Comm) -> None:
        x = torch.arange(1000, dtype=torch.float32) * (comm.rank + 1)
        y = comm.all_reduce(x if comm.rank == 0 else x.numpy())
        assert type(y) is (torch.Tensor if comm.rank == 0 else np.ndarray)
        assert np.asarray(y).tolist() == (np.arange(1000) * 3.0).tolist()

    on_threads(2, body)


def test_parameters(comm: symm.Comm) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    for x, out, name in ((parameter, None, "x"), (torch.ones(3), parameter, "out")):
        with pytest.raises(
            symm.InvalidArgumentError, match=rf"{name} requires grad.*{name}\.detach\(\)"
        ):
            comm.all_reduce(x, out=out)
    assert comm.all_reduce(parameter.detach()).equal(torch.ones(3))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    assert comm.all_reduce(frozen, out=frozen) is frozen


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(4, 4).t(), "not contiguous"),
        (lambda: torch.ones(4).expand(3, 4), "not contiguous"),
        (lambda: torch.ones(8)[::2], "not contiguous"),
        (lambda: torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last), "not contiguous"),
        (lambda: torch.ones(3, dtype=torch.bool), "dtype torch.bool"),
        (lambda: torch.ones(3, dtype=torch.complex64), "dtype torch.complex64"),
        (lambda: torch.ones(3, dtype=torch.int16), "dtype torch.int16"),
        (lambda: torch.ones(3, device="meta"), "is on device meta"),
        (lambda: torch.ones(3).to_sparse(), "layout torch.sparse_coo"),
        (lambda: torch.imag(torch.ones(1, dtype=torch.complex64).conj()), "negat"),
    ],
)
def test_refuses(comm: symm.Comm, make: Any, message: str) -> None:
    with pytest.raises(symm.InvalidArgumentError) as raised:
        comm.all_reduce(make())
    assert message in str(raised.value)
    with pytest.raises(symm.InvalidArgumentError):
        comm.all_reduce(torch.ones(3), out=make())


def test_overlap(comm: symm.Comm) -> None:
    room = torch.zeros(10)
    with pytest.raises(symm.InvalidArgumentError, match="overlap"):
        comm.all_reduce(room[:5], out=room[2:7])


def test_a_tensor_keeps_the_windows_memory(comm: symm.Comm) -> None:
    window = comm.window(1000)
    x = window.torch()
    window.close()
    del window
    x.fill_(3)
    assert float(x.sum()) == 3000.0


@pytest.mark.parametrize("name", DTYPES)
def test_a_pytorch_without_the_table_of_c_functions(name: str) -> None:
    from symm import _arrays, _capi

    for x in (
        torch.ones(2, 3).to(getattr(torch, name)),
        torch.ones(4, 4).to(getattr(torch, name)).t()[:2],
    ):
        slow = _arrays.look(x, "f", "x", None)
        assert slow[:6] == _capi.look(x, "f", "x")
