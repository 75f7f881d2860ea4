"""Reduces an array over all ranks, twice: from anywhere, and from a window, which takes one copy
less.

    python all_reduce.py tcp://127.0.0.1:29500 0 2 &
    python all_reduce.py tcp://127.0.0.1:29500 1 2
"""

import sys

import numpy as np
import symm

COUNT = 1000


def fnv1a(data: bytes) -> int:
    digest = 14695981039346656037
    for byte in data:
        digest = (digest ^ byte) * 1099511628211 % 2**64
    return digest


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: all_reduce.py ADDRESS RANK SIZE")
    address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

    with symm.Comm(address, rank, size, timeout=60) as comm:
        x = 1 / (1 + np.arange(COUNT, dtype=np.float32) + np.float32(1000 * rank))
        total = comm.all_reduce(x)

        with comm.window(COUNT, "float32") as window:
            window.numpy()[:] = x
            from_window = window.all_reduce(out=np.empty_like(x))
            if from_window.tobytes() != total.tobytes():
                sys.exit("all_reduce.py: the window's sum differs")

        print(
            f"rank {rank} of {size}: sum[0] = {total[0]:.6f}, digest {fnv1a(total.tobytes()):016x}"
        )


if __name__ == "__main__":
    try:
        main()
    except (symm.SymmError, ValueError) as error:
        sys.exit(f"all_reduce.py: {error}")
