"""What other ranks do wrong: exceptions of the right class, with the rank, in time."""

from __future__ import annotations

import builtins
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import symm
from ranks import DEADLINE, Processes, address, in_thread, on_threads, script, unique_name


@pytest.mark.parametrize("how", ["kill", "exit", "goodbye"])
def test_a_rank_that_dies(how: str) -> None:
    ends = {
        "kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "exit": "import os; os._exit(3)",
        "goodbye": "comm.close()",
    }
    with Processes(
        2,
        f"""
        import time
        import numpy as np
        with symm.Comm(address, rank, size, timeout=60, wait_timeout=60, name="dies {how}") as comm:
            comm.all_reduce(np.ones(4))
            if rank == 1:
                {ends[how]}
                raise SystemExit
            start = time.monotonic()
            for again in range(2):
                try:
                    comm.all_reduce(np.ones(4))
                    print("no failure")
                except symm.PeerError as error:
                    assert isinstance(error, ConnectionError) and error.status_name == "SYMM_PEER"
                    print(error.rank, "rank 1" in str(error))
            for call in (comm.check, comm.barrier, lambda: comm.window(3)):
                try:
                    call()
                    print("no failure")
                except symm.PeerError as error:
                    print(error.rank)
            print(time.monotonic() - start < 30)
        """,
    ) as processes:
        out, err = processes.processes[0].communicate(timeout=2 * DEADLINE)
        assert out == "1 True\n1 True\n1\n1\n1\nTrue\n", (out, err)


def test_a_rank_that_comes_late() -> None:
    late = threading.Event()

    def body(comm: symm.Comm) -> None:
        if comm.rank == 1:
            late.wait(DEADLINE)
            return
        try:
            start = time.monotonic()
            with pytest.raises(symm.TimeoutError, match="rank 1") as raised:
                comm.all_reduce(np.ones(4))
            assert 0.2 < time.monotonic() - start < 30
            assert isinstance(raised.value, builtins.TimeoutError) and isinstance(
                raised.value, OSError
            )
            assert raised.value.status_name == "SYMM_TIMEOUT"
            assert raised.value.rank == 1
            with pytest.raises(symm.TimeoutError):
                comm.check()
            assert "SYMM_TIMEOUT" in str(comm.report())
        finally:
            late.set()

    on_threads(2, body, wait_timeout=0.3)


def test_nobody_comes() -> None:
    start = time.monotonic()
    with pytest.raises(symm.TimeoutError, match="rank 1"):
        symm.Comm(address(), 0, 2, name=unique_name(), timeout=0.5)
    assert 0.4 < time.monotonic() - start < 30


def test_ranks_that_call_different_things() -> None:
    def body(comm: symm.Comm) -> None:
        with pytest.raises(symm.MismatchError) as raised:
            comm.all_reduce(np.ones(4 + comm.rank))
        assert raised.value.status_name == "SYMM_MISMATCH"

    on_threads(2, body)


def test_abort_from_a_thread() -> None:
    def body(comm: symm.Comm) -> None:
        if comm.rank == 0:
            in_thread(lambda: (time.sleep(0.2), comm.abort()))
            with pytest.raises(symm.AbortedError):
                comm.all_reduce(np.ones(4))
        else:
            deadline = time.monotonic() + DEADLINE
            with pytest.raises(symm.AbortedError):
                while time.monotonic() < deadline:
                    comm.check()
        for call in (
            comm.check,
            comm.barrier,
            lambda: comm.all_reduce(np.ones(4)),
            lambda: comm.window(4),
        ):
            with pytest.raises(symm.AbortedError):
                call()

    on_threads(2, body)


def test_other_threads_run_during_a_call() -> None:
    """The interpreter is let go: without that, the ticks stop for as long as the call waits."""
    stop, ticks = threading.Event(), [0]

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    def body(comm: symm.Comm) -> None:
        calls: list[Any] = [
            lambda: comm.all_reduce(np.ones(4)),
            comm.barrier,
            lambda: comm.window(4).close(),
            lambda: comm.split(0),
            lambda: window.all_reduce(),
            lambda: comm.register(window.numpy()).close(),
        ]
        window = comm.window(4)
        for call in calls:
            comm.barrier()
            if comm.rank == 1:
                time.sleep(0.2)
            before = ticks[0]
            call()
            if comm.rank == 0:
                assert ticks[0] - before > 20

    thread = in_thread(tick)
    try:
        on_threads(2, body)
    finally:
        stop.set()
        thread.join(DEADLINE)


def test_ctrl_c_is_seen_when_the_call_returns() -> None:
    printed = script(
        """
        import os, signal, threading, time
        import numpy as np
        import symm
        address = symm.create_address("127.0.0.1")
        def late():
            with symm.Comm(address, 1, 2, timeout=30) as comm:
                time.sleep(0.5)
                comm.all_reduce(np.ones(4))
        thread = threading.Thread(target=late)
        thread.start()
        comm = symm.Comm(address, 0, 2, timeout=30)
        out = np.zeros(4)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            comm.all_reduce(np.ones(4), out=out)
            time.sleep(5)
            print("no interrupt")
        except KeyboardInterrupt:
            print("interrupted", out.tolist())
        thread.join()
        """
    )
    assert printed == "interrupted [2.0, 2.0, 2.0, 2.0]\n"


def test_a_forked_child() -> None:
    printed = script(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")  # Python's own, on threads and fork
        import numpy as np
        import symm
        address = symm.create_address("127.0.0.1")
        comm = symm.Comm(address, 0, 1)
        window = comm.window(10)
        pid = os.fork()
        if pid == 0:
            for call in (
                lambda: comm.all_reduce(np.ones(3)),
                lambda: comm.barrier(),
                lambda: comm.check(),
                lambda: comm.window(3),
                lambda: comm.split(0),
                lambda: window.all_reduce(),
                lambda: window[0],
            ):
                try:
                    call()
                    print("no failure", flush=True)
                except symm.InvalidArgumentError as error:
                    print("fork" in str(error), flush=True)
            window.close()
            comm.close()
            with symm.Comm(symm.create_address("127.0.0.1"), 0, 1, name="child") as own:
                print(own.all_reduce(np.ones(2)).tolist(), flush=True)
            sys.exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print("child", status, comm.all_reduce(np.ones(2)).tolist(), window.all_reduce().shape)
        """
    )
    assert printed == "True\n" * 7 + "[1.0, 1.0]\nchild 0 [1.0, 1.0] (10,)\n"


def test_ranks_by_multiprocessing() -> None:
    printed = script(
        """
        import multiprocessing
        import numpy as np
        import symm
        def rank_main(address, rank, queue):
            with symm.Comm(address, rank, 2, timeout=60) as comm:
                queue.put(float(comm.all_reduce(np.ones(1))[0]))
        if __name__ == "__main__":
            context = multiprocessing.get_context("fork")
            queue = context.Queue()
            address = symm.create_address("127.0.0.1")
            processes = [context.Process(target=rank_main, args=(address, rank, queue)) for rank in range(2)]
            [process.start() for process in processes]
            print(queue.get(timeout=60), queue.get(timeout=60))
            [process.join() for process in processes]
            print([process.exitcode for process in processes])
        """
    )
    assert printed == "2.0 2.0\n[0, 0]\n"


def test_split() -> None:
    def body(comm: symm.Comm) -> None:
        color = comm.rank % 2
        part = comm.split(color, key=-comm.rank, name="part")
        assert part is not None and part.size == 2 and part.rank == (1 if comm.rank < 2 else 0)
        assert part.all_reduce(np.full(3, float(comm.rank))).tolist() == [2.0 + 2 * color] * 3
        none = comm.split(None if comm.rank else 0)
        assert (none is None) == (comm.rank > 0)
        comm.close()
        assert part.all_reduce(np.ones(1)).tolist() == [2.0]
        part.close()

    on_threads(4, body)


def test_from_env() -> None:
    code = """
        import symm, numpy as np
        with symm.Comm.from_env(timeout=60) as comm:
            print(comm.rank, comm.size, comm.device, comm.all_reduce(np.ones(1))[0])
    """
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    env = {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    assert script(code, env=env) == "0 1 cpu 1.0\n"


def test_reports() -> None:
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm, comm.window(10) as window:
        assert isinstance(comm.report(), dict) and isinstance(symm.report(), dict)
        for plan in (
            comm.plan(10, "float32"),
            comm.plan((2, 5), "float32", "max", window),
            comm.plan(0, np.float64, op="avg"),
        ):
            assert isinstance(plan["algorithm"], str)
        with pytest.raises(symm.InvalidArgumentError, match="known are"):
            comm.plan(10, "float32", "mean")
        with pytest.raises((symm.UnsupportedError, symm.InvalidArgumentError)):
            comm.nccl


def test_a_gpu_without_one() -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    for device in (0, "cuda:0", "local", "current"):
        with pytest.raises(symm.UnsupportedError) as raised:
            symm.Comm(address(), 0, 1, device, name=unique_name())
        assert isinstance(raised.value, NotImplementedError)


def test_what_a_program_in_c_needs() -> None:
    import ctypes

    assert os.path.isfile(os.path.join(symm.get_include(), "symm.h"))
    library = ctypes.CDLL(symm.get_library())
    version = library.symm_version()
    assert symm.__version__ == f"{version // 1000000}.{version // 1000 % 1000}.{version % 1000}"


def test_every_status_has_a_class() -> None:
    classes = [getattr(symm, name) for name in symm.__all__ if name.endswith("Error")]
    statuses = {kind().status: kind for kind in classes if kind is not symm.SymmError}
    assert sorted(statuses) == list(range(-11, 0))
    for status, kind in statuses.items():
        assert issubclass(kind, symm.SymmError) and issubclass(kind, RuntimeError)
        # SYMM_OUT_OF_MEMORY: OutOfMemoryError.
        stem = kind().status_name.removeprefix("SYMM_").replace("_", "").lower()
        assert kind.__name__.lower().removesuffix("error").startswith(stem), (status, kind)


def test_signals_are_the_programs() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
