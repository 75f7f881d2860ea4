#!/usr/bin/env python3
"""The line that every rank of the program all_reduce must print, computed without symm.

Usage: reference.py SIZE      prints one line for each rank 0..SIZE-1
"""
import struct
import sys

COUNT = 1000
MASK = 2**64 - 1


def float32(value):
    """The float32 nearest to a Python float (ties to even)."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def operand(rank):
    # Dividing, or adding below, in double and then rounding to float32 gives the same as doing it
    # in float32: a double has more than twice the bits and two to spare.
    return [float32(1 / (1 + i + 1000 * rank)) for i in range(COUNT)]


def all_reduced(size):
    """The sums of `size` ranks' operands, in rank order, rounded to float32 after each addition."""
    total = operand(0)
    for rank in range(1, size):
        total = [float32(a + b) for a, b in zip(total, operand(rank))]
    return total


def fnv1a(data):
    digest = 14695981039346656037
    for byte in data:
        digest = ((digest ^ byte) * 1099511628211) & MASK
    return digest


def lines(size):
    total = all_reduced(size)
    digest = fnv1a(struct.pack("<%df" % COUNT, *total))
    return [
        "rank %d of %d: sum[0] = %.6f, digest %016x" % (rank, size, total[0], digest)
        for rank in range(size)
    ]


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit() or not 1 <= int(sys.argv[1]) <= 1024:
        sys.exit("usage: reference.py SIZE, from 1 to 1024")
    print("\n".join(lines(int(sys.argv[1]))))
