"""Arrays of other libraries, in and out, by every protocol."""

from __future__ import annotations

import array
import ctypes
import gc
import weakref
from typing import Any, Iterator

import ml_dtypes
import numpy as np
import pytest

import reference
import symm
from ranks import address, on_threads, unique_name

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None
needs_jax = pytest.mark.skipif(jax is None, reason="JAX is not installed")


@pytest.fixture(scope="module")
def comm() -> Iterator[symm.Comm]:
    with symm.Comm(address(), 0, 1, name=unique_name(), timeout=30) as comm:
        yield comm


class Interface:
    """Nothing but __array_interface__."""

    def __init__(self, x: np.ndarray[Any, Any], **changes: Any) -> None:
        self.x = x
        self.__array_interface__ = {**x.__array_interface__, **changes}


class Dlpack:
    """Nothing but DLPack, of a given age."""

    def __init__(self, x: Any, versioned: bool) -> None:
        self.x = x
        self.versioned = versioned
        self.live: list[weakref.ref[Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.x.__dlpack__(**options)


@pytest.mark.parametrize("kind", ["interface", "strides", "old", "new"])
def test_protocols_as_input_and_output(comm: symm.Comm, kind: str) -> None:
    def wrap(x: np.ndarray[Any, Any]) -> Any:
        if kind == "interface":
            return Interface(x)
        if kind == "strides":
            return Interface(x, strides=x.strides)
        return Dlpack(x, kind == "new")

    x, y = np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((2, 3), np.int32)
    out = wrap(y)
    assert comm.all_reduce(wrap(x), out=out) is out
    assert (y == x).all()
    with pytest.raises(TypeError, match="out is needed"):
        comm.all_reduce(wrap(x))
    with pytest.raises(symm.InvalidArgumentError, match="not contiguous"):
        comm.all_reduce(wrap(x.T), out=wrap(y.T))
    with comm.window((2, 3), np.int32) as window:
        window.numpy()[...] = x
        y[...] = 0
        assert window.all_reduce(out) is out
        assert (y == x).all()


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1), (0, 5)])
def test_strides_that_nothing_is_found_by(comm: symm.Comm, shape: tuple[int, int]) -> None:
    """Of an extent of 1 the stride means nothing, and of no elements none does."""
    room = np.arange(100.0)
    x = np.lib.stride_tricks.as_strided(room, shape, tuple(8 if n == 3 else 56 for n in shape))
    for wrapped in (x, Interface(x, strides=x.strides), Dlpack(x, False), Dlpack(x, True)):
        out = np.zeros(shape)
        assert (comm.all_reduce(wrapped, out=out) == x).all()


def test_a_borrowed_capsule_is_given_back(comm: symm.Comm) -> None:
    for versioned in (False, True):
        x = np.arange(4.0)
        seen = weakref.ref(x)
        comm.all_reduce(Dlpack(x, versioned), out=np.zeros(4))
        del x
        gc.collect()
        assert seen() is None


def test_read_only_dlpack_is_refused_as_output(comm: symm.Comm) -> None:
    x = np.arange(4.0)
    x.flags.writeable = False
    with pytest.raises(symm.InvalidArgumentError, match="read-only"):
        comm.all_reduce(np.ones(4), out=Dlpack(x, True))


def test_a_used_capsule_is_refused(comm: symm.Comm) -> None:
    capsule = np.arange(4.0).__dlpack__()

    class Once:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            return capsule

    assert comm.all_reduce(Once(), out=np.zeros(4)).tolist() == [0, 1, 2, 3]
    set_name = ctypes.pythonapi.PyCapsule_SetName
    set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = b"used_dltensor"
    set_name(capsule, name)
    with pytest.raises(TypeError, match="no fresh DLPack capsule"):
        comm.all_reduce(Once(), out=np.zeros(4))
    set_name(capsule, b"dltensor")


@needs_jax
@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_jax_arrays(comm: symm.Comm, dtype: str) -> None:
    with jax.enable_x64():  # without which JAX has no 64-bit types
        check_jax_array(comm, dtype)


def check_jax_array(comm: symm.Comm, dtype: str) -> None:
    value = reference.operand(reference.DTYPES[dtype], (3, 5), 3)
    x = jnp.asarray(value)
    result = comm.all_reduce(x)
    assert isinstance(result, jax.Array) and result.dtype == x.dtype and result.shape == x.shape
    assert np.asarray(result).tobytes() == value.tobytes()
    assert np.asarray(x).tobytes() == value.tobytes()
    out = np.zeros_like(value)
    assert comm.all_reduce(x, out=out).tobytes() == value.tobytes()
    with pytest.raises(symm.InvalidArgumentError, match="out is read-only"):
        comm.all_reduce(x, out=x)
    with comm.window((3, 5), dtype) as window:
        window.numpy()[...] = value
        seen = jax.dlpack.from_dlpack(window.local)
        assert seen.dtype == x.dtype and np.asarray(seen).tobytes() == value.tobytes()


@needs_jax
def test_jax_ranks() -> None:
    def body(comm: symm.Comm) -> None:
        x = jnp.arange(10.0) * (comm.rank + 1)
        assert comm.all_reduce(x).tolist() == (jnp.arange(10.0) * 3).tolist()

    on_threads(2, body)


@pytest.mark.parametrize("code", ["b", "B", "i", "I", "l", "L", "q", "Q", "f", "d"])
def test_arrays_of_the_standard_library(comm: symm.Comm, code: str) -> None:
    x, y = array.array(code, [1, 2, 3]), array.array(code, [0, 0, 0])
    assert comm.all_reduce(x, out=y) is y
    assert y == x
    z = comm.all_reduce(x)
    assert type(z) is array.array and z == x and z is not x
    view = memoryview(y)
    assert comm.all_reduce(view, out=view) is view
    del view
    y.append(4)  # which no export forbids any more


def test_buffers_of_bytes(comm: symm.Comm) -> None:
    x, y = bytearray(b"abc"), bytearray(3)
    assert comm.all_reduce(x, out=y) == b"abc"
    assert comm.all_reduce(bytearray(), out=bytearray()) == b""
    with pytest.raises(symm.InvalidArgumentError, match="read-only"):
        comm.all_reduce(x, out=b"abc")


def test_subclasses_of_ndarray(comm: symm.Comm) -> None:
    class Mine(np.ndarray[Any, Any]):
        pass

    x = np.arange(4.0).view(Mine)
    assert type(comm.all_reduce(x)) is np.ndarray
    assert comm.all_reduce(x, out=x) is x


@pytest.mark.parametrize("dtype", reference.DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_views_by_every_protocol(comm: symm.Comm, dtype: str, shape: tuple[int, ...]) -> None:
    numpy_dtype = reference.DTYPES[dtype]
    with comm.window(shape, dtype) as window:
        view = window[0]
        x = window.numpy()
        assert x.dtype == numpy_dtype and x.shape == shape and x.flags.writeable
        value = reference.operand(numpy_dtype, shape, 1)
        x[...] = value
        assert (view.ndim, view.size, view.nbytes, view.itemsize) == (
            x.ndim,
            x.size,
            x.nbytes,
            x.itemsize,
        )
        assert view.dtype == dtype and view.device == "cpu" and view.rank == 0
        if x.size:
            assert x.ctypes.data == view.address
            assert np.asarray(view).ctypes.data == view.address
        if "float8" not in dtype and dtype != "bfloat16":
            for options in (
                {},
                {"max_version": None},
                {"max_version": (0, 8)},
                {"max_version": (1, 0)},
            ):
                again = np.from_dlpack(Passing(view, options))
                assert again.tobytes() == value.tobytes() and again.shape == shape
            if x.size and dtype != "float16":
                flat = view.memoryview()
                assert flat.tobytes() == value.tobytes() and not flat.readonly
                assert np.asarray(flat).ravel().tobytes() == value.tobytes()
        elif x.size:
            assert view.memoryview().format == "B"
        assert not hasattr(view, "__cuda_array_interface__")
        if shape:
            assert len(view) == shape[0]


class Passing:
    """A view whose __dlpack__ sees other arguments than NumPy's."""

    def __init__(self, view: symm.View, options: Any) -> None:
        self.view = view
        self.options = options

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.view.__dlpack__(**self.options)


def test_dlpack_requests_that_cannot_be(comm: symm.Comm) -> None:
    with comm.window(4) as window:
        for error, options in (
            (BufferError, {"copy": True}),
            (BufferError, {"dl_device": (2, 0)}),
            (ValueError, {"stream": 3}),
        ):
            with pytest.raises(error):
                window.local.__dlpack__(**options)
        window.local.__dlpack__(stream=-1, copy=False, dl_device=(1, 0))


def test_dlpack_capsules_leave_nothing_behind(comm: symm.Comm) -> None:
    with comm.window(4) as window:
        for options in ({}, {"max_version": (1, 0)}):
            view = window.local
            seen = weakref.ref(view)
            capsule = view.__dlpack__(**options)
            used = np.from_dlpack(Passing(view, options))
            del view
            gc.collect()
            assert seen() is not None
            del capsule
            assert seen() is not None
            assert used.flags.writeable == bool(options)  # NumPy writes to what says that it may
            del used
            gc.collect()
            assert seen() is None


def test_windows_of_ml_dtypes_reduce(comm: symm.Comm) -> None:
    with comm.window(3, ml_dtypes.bfloat16) as window:
        window.numpy()[:] = [1, 2, 3]
        out = np.zeros(3, ml_dtypes.bfloat16)
        assert window.all_reduce(out).tolist() == [1, 2, 3]
        with pytest.raises(symm.InvalidArgumentError, match="dtype"):
            window.all_reduce(np.zeros(3, np.uint16))


@pytest.mark.parametrize("dtype", reference.DTYPES)
def test_views_are_arrays_too(comm: symm.Comm, dtype: str) -> None:
    value = reference.operand(reference.DTYPES[dtype], (2, 3), 1)
    with comm.window((2, 3), dtype) as window, comm.window((2, 3), dtype) as other:
        window.numpy()[...] = value
        assert comm.all_reduce(window[0], out=np.zeros_like(value)).tobytes() == value.tobytes()
        view = other[0]
        assert comm.all_reduce(value, out=view) is view
        assert other.numpy().tobytes() == value.tobytes()
        other.numpy()[...] = 0
        assert window.all_reduce(view) is view
        assert other.numpy().tobytes() == value.tobytes()
