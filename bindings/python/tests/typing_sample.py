"""Checked by mypy --strict and pyright, never run: what users write has the types that they expect."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import symm
from typing_extensions import assert_type


def sample(x: npt.NDArray[np.float32]) -> None:
    with symm.Comm(symm.create_address("127.0.0.1"), 0, 1, device="cpu", timeout=1.5) as comm:
        assert_type(comm, symm.Comm)
        assert_type(comm.all_reduce(x), "npt.NDArray[np.float32]")
        assert_type(comm.all_reduce(x, out=x, op="max"), "npt.NDArray[np.float32]")
        assert_type(comm.split(None), "symm.Comm | None")
        assert_type(comm.rank, int)
        with comm.window((3, 4), "bfloat16") as window:
            assert_type(window[0], symm.View)
            assert_type(window.all_reduce(), symm.View)
            assert_type(window.all_reduce(x, offset=3, count=4), "npt.NDArray[np.float32]")
            assert_type(window[0].memoryview().nbytes, int)
            assert_type(window.shape, "tuple[int, ...]")
            for view in window:
                assert_type(view.rank, int)
    try:
        symm.Comm.from_env("local", name="x")
    except symm.TimeoutError as error:
        assert_type(error.status, int)
        assert_type(error.rank, "int | None")
        as_python: TimeoutError = error
        print(as_python)


def wrong(comm: symm.Comm, window: symm.Window) -> None:
    comm.all_reduce(1, op="mean")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    comm.rank = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    comm.window("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    window.nothing  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
