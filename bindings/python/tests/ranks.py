"""Ranks for tests: threads of this process, or processes. Everything ends within a bounded time."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import symm

#: For every wait of a test that is not about time itself.
DEADLINE = 60.0

_names = itertools.count()


def unique_name(stem: str = "test") -> str:
    return f"{stem}{next(_names)}"


_address: list[str] = []


def address() -> str:
    """One address of this process for all its tests; communicators have names of their own."""
    if not _address:
        _address.append(symm.create_address("127.0.0.1"))
    return _address[0]


def on_threads(size: int, body: Callable[[symm.Comm], Any], **options: Any) -> list[Any]:
    """body(comm) on every rank of a new communicator; the results by rank. The first failure is raised."""
    options.setdefault("timeout", DEADLINE)
    options.setdefault("wait_timeout", DEADLINE)
    options.setdefault("name", unique_name())

    def run(rank: int) -> Any:
        with symm.Comm(address(), rank, size, **options) as comm:
            return body(comm)

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        return [future.result(timeout=4 * DEADLINE) for future in futures]


class Processes:
    """`code` (with address, rank and size as variables, symm imported) in a process for each rank."""

    def __init__(
        self, size: int, code: str, python: str = sys.executable, env: dict[str, str] | None = None
    ) -> None:
        where = address()
        self.processes = [
            subprocess.Popen(
                [
                    python,
                    "-c",
                    f"import symm\naddress, rank, size = {where!r}, {rank}, {size}\n"
                    + textwrap.dedent(code),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **(env or {})},
            )
            for rank in range(size)
        ]

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def finish(self, expect: int | None = 0) -> list[str]:
        """What each printed; every one must end with that status."""
        printed = []
        for rank, process in enumerate(self.processes):
            out, err = process.communicate(timeout=2 * DEADLINE)
            assert expect is None or process.returncode == expect, (
                f"rank {rank} ended with {process.returncode}:\n{out}\n{err}"
            )
            printed.append(out)
        return printed


def on_processes(size: int, code: str) -> list[str]:
    with Processes(size, code) as processes:
        return processes.finish()


def script(
    code: str,
    *arguments: str,
    expect: int = 0,
    env: dict[str, str] | None = None,
    timeout: float = DEADLINE,
) -> str:
    """Runs a program of its own; what it printed, on both streams. A crash has a negative status, so it fails."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == expect, f"ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def in_thread(body: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread
