"""What Python adds to a call, on each kind of array: at most 2 us, told from blocks of calls that nobody disturbed."""

from __future__ import annotations

import pytest

import cost

LIMIT = 2.0
ATTEMPTS = 5  # others use this machine too


@pytest.mark.parametrize("size", [1, 2])
def test_what_python_adds(size: int) -> None:
    seen = []
    for _ in range(ATTEMPTS):
        added = {name: times["quiet"] for name, times in cost.run(size, 300).items()}
        seen.append(added)
        if all(value <= LIMIT for value in added.values()):
            return
    pytest.fail(f"microseconds added, attempt by attempt: {seen}")
