"""The example program, against a sum that NumPy has no part in."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

import symm

PROGRAM = os.path.join(os.path.dirname(__file__), "../../../examples/languages/all_reduce.py")


def float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def expected(size: int) -> tuple[float, str]:
    digest, first = 14695981039346656037, 0.0
    for i in range(1000):
        total = float32(1 / (1 + i))
        for rank in range(1, size):
            # The sum of two float32 is exact enough in float64 for its rounding to be float32's own.
            total = float32(total + float32(1 / (1 + i + 1000 * rank)))
        first = total if i == 0 else first
        for byte in struct.pack("<f", total):
            digest = (digest ^ byte) * 1099511628211 % 2**64
    return first, f"{digest:016x}"


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_example(size: int) -> None:
    address = symm.create_address("127.0.0.1")
    programs = [start(address, str(rank), str(size)) for rank in range(size)]
    first, digest = expected(size)
    for rank, program in enumerate(programs):
        out, err = program.communicate(timeout=120)
        assert (program.returncode, err) == (0, "")
        assert out == f"rank {rank} of {size}: sum[0] = {first:.6f}, digest {digest}\n"


@pytest.mark.parametrize(
    "arguments", [(), ("nowhere", "0", "1"), ("tcp://127.0.0.1:1", "2", "1"), ("a", "b", "c")]
)
def test_the_example_says_what_is_wrong(arguments: tuple[str, ...]) -> None:
    program = start(*arguments)
    out, err = program.communicate(timeout=120)
    assert program.returncode == 1 and out == "" and err.count("\n") == 1 and err.strip()
