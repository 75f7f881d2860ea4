"""What Python adds to the C call, in microseconds a call: blocks of calls from Python and from a
loop in C, in turn, on one communicator of one and of two processes; medians. Run by itself it
prints a table; cost_test.py holds it to its limit.

    python cost.py [BLOCKS]
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

import symm

CALLS = 100  # in a block
COUNT = 4  # elements: the smaller, the more the rest counts

LOOP = r"""
#include <symm.h>
int loop(symm_comm *comm, const float *x, float *out, size_t count, int calls) {
  for (int i = 0; i < calls; ++i) {
    if (symm_all_reduce(comm, x, out, count, SYMM_FLOAT32, SYMM_SUM, NULL) != SYMM_OK) return 1;
  }
  return 0;
}
"""


def compile_loop(directory: str) -> Any:
    source, library = os.path.join(directory, "loop.c"), os.path.join(directory, "loop.so")
    with open(source, "w") as file:
        file.write(LOOP)
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            f"-I{symm.get_include()}",
            source,
            symm.get_library(),
            "-o",
            library,
        ],
        check=True,
    )
    ctypes.CDLL(symm.get_library())
    loop = ctypes.CDLL(library).loop
    loop.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
    ]
    return loop


def pointer_of(comm: symm.Comm) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get(comm._handle, b"symm_comm"))


def measure(comm: symm.Comm, loop: Any, blocks: int, x: Any, out: Any) -> dict[str, float]:
    """Of all blocks the medians, and the lowest decile: of blocks during which nobody else wanted
    the processors. The C loop works on the same memory."""
    pointer = pointer_of(comm)
    address = (
        (x.data_ptr(), out.data_ptr())
        if hasattr(x, "data_ptr")
        else (x.ctypes.data, out.ctypes.data)
    )
    times: dict[str, list[float]] = {"python": [], "c": []}
    for _ in range(blocks):
        comm.barrier()
        start = time.perf_counter()
        for _ in range(CALLS):
            comm.all_reduce(x, out=out)
        middle = time.perf_counter()
        comm.barrier()
        again = time.perf_counter()
        assert loop(pointer, *address, COUNT, CALLS) == 0
        end = time.perf_counter()
        times["python"].append((middle - start) / CALLS * 1e6)
        times["c"].append((end - again) / CALLS * 1e6)
    result = {name: statistics.median(values) for name, values in times.items()}
    quiet = {name: sorted(values)[len(values) // 10] for name, values in times.items()}
    return {
        **result,
        "added": result["python"] - result["c"],
        "quiet": quiet["python"] - quiet["c"],
    }


def arrays() -> dict[str, tuple[Any, Any]]:
    result: dict[str, tuple[Any, Any]] = {
        "numpy": (np.ones(COUNT, np.float32), np.zeros(COUNT, np.float32))
    }
    try:
        import torch
    except ImportError:
        print("no PyTorch here", file=sys.stderr)
    else:
        torch.set_num_threads(1)
        result["torch"] = (torch.ones(COUNT), torch.zeros(COUNT))
    return result


def run_rank(address: str, rank: int, size: int, blocks: int) -> dict[str, dict[str, float]]:
    with (
        tempfile.TemporaryDirectory() as directory,
        symm.Comm(address, rank, size, timeout=120) as comm,
    ):
        loop = compile_loop(directory)
        results = {}
        for name, (x, out) in arrays().items():
            measure(comm, loop, max(1, blocks // 10), x, out)
            results[name] = measure(comm, loop, blocks, x, out)
        return results


def run(size: int, blocks: int) -> dict[str, dict[str, float]]:
    """Rank 0's results."""
    address = symm.create_address("127.0.0.1")
    others = [
        subprocess.Popen(
            [sys.executable, __file__, "rank", address, str(rank), str(size), str(blocks)]
        )
        for rank in range(1, size)
    ]
    try:
        return run_rank(address, 0, size, blocks)
    finally:
        for other in others:
            other.wait(120)


def main() -> None:
    if sys.argv[1:2] == ["rank"]:
        run_rank(sys.argv[2], *map(int, sys.argv[3:6]))
        return
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    for size in (1, 2):
        for name, times in run(size, blocks).items():
            print(
                f"{size} rank{'s' if size > 1 else ''}, {name}: {times['python']:.2f} us from "
                f"Python, {times['c']:.2f} from C, {times['added']:.2f} added "
                f"(undisturbed {times['quiet']:.2f})"
            )


if __name__ == "__main__":
    main()
