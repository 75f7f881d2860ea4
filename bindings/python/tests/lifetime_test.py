"""Who keeps what alive, in any order of ends: a crash ends the subprocess by a signal, which script() reports."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from typing import Any, Callable

import numpy as np
import pytest

import symm
from ranks import DEADLINE, address, in_thread, on_threads, script, unique_name


def is_mapped(address: int) -> bool:
    """Whether memory that is shared is mapped there."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            if "memfd:" in line:
                start, end = line.split()[0].split("-")
                if int(start, 16) <= address < int(end, 16):
                    return True
    return False


def test_a_view_keeps_the_memory() -> None:
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        window = comm.window(1 << 20)
        x = window.numpy()
        window.close()
        del window
    del comm
    gc.collect()
    x[:] = 7
    assert float(x.sum()) == 7.0 * (1 << 20)


def test_memory_goes_with_the_last_view() -> None:
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        window = comm.window(1 << 24)  # of its own, so that it goes by itself
        where = window[0].address
        views = [window[0], window.numpy(), window[0].memoryview(), np.from_dlpack(window[0])]
        window.close()
        while views:
            gc.collect()
            assert is_mapped(where), f"with {len(views)} views left"
            views.pop()
        gc.collect()
        deadline = time.monotonic() + DEADLINE  # unmapping is a helper thread's work
        while is_mapped(where):
            assert time.monotonic() < deadline, "the memory is still mapped"
            time.sleep(0.01)


@pytest.mark.parametrize(
    "make",
    [
        lambda window: window[0],
        lambda window: window.numpy(),
        lambda window: window.numpy()[5:].reshape(-1),
        lambda window: window[0].memoryview(),
        lambda window: window[0].memoryview()[5:],
        lambda window: np.from_dlpack(window[0]),
        lambda window: window[0].__dlpack__(),
        lambda window: window[0].__dlpack__(max_version=(1, 0)),
        lambda window: window.all_reduce(),
        lambda window: window.all_reduce(offset=3),
    ],
)
def test_each_kind_of_view_alone_keeps_the_memory(make: Callable[[symm.Window], Any]) -> None:
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        window = comm.window(1 << 24)
        where = window[0].address
        view = make(window)
        window.close()
        del window
        gc.collect()
        time.sleep(0.1)  # unmapping is a helper thread's work
        assert is_mapped(where)
        del view


def test_a_window_outlives_its_communicators_object() -> None:
    def body(comm: symm.Comm) -> None:
        window = comm.window(10)
        comm.close()
        window.numpy()[:] = 1
        out = np.zeros(10, np.float32)
        assert window.all_reduce(out).tolist() == [2.0] * 10
        window.close()

    on_threads(2, body)


def test_a_registered_window_keeps_its_array() -> None:
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        base = comm.window(1024)
        x = base.numpy()[128:256]
        seen = weakref.ref(x)
        window = comm.register(x)
        view = window[0]
        del x
        base.close()
        gc.collect()
        assert seen() is not None
        window.numpy()[:] = 3
        assert seen()[0] == 3  # type: ignore[index]
        window.close()
        gc.collect()
        assert seen() is not None, "a view of the registered window is left"
        del view
        gc.collect()
        assert seen() is None


def test_register_sees_one_memory() -> None:
    def body(comm: symm.Comm) -> None:
        base = comm.window((4, 8), "int32")
        window = comm.register(base.numpy()[1:3])
        assert window.shape == (2, 8) and window.dtype == "int32"
        base.numpy()[1:3] = comm.rank + 1
        assert (window.all_reduce(np.zeros((2, 8), np.int32)) == 3).all()
        comm.barrier()
        assert (window[1 - comm.rank].numpy() == 2 - comm.rank).all()
        comm.barrier()
        assert not base.numpy()[0].any() and not base.numpy()[3].any()

    on_threads(2, body)


def test_register_a_memfd() -> None:
    import mmap

    def body(comm: symm.Comm) -> None:
        fd = os.memfd_create("test")
        os.ftruncate(fd, 8192)
        with mmap.mmap(fd, 8192) as memory:
            x = np.frombuffer(memory, np.float64, 512, 4096)
            window = comm.register(x, fd=fd, fd_offset=4096)
            x[:] = comm.rank + 1
            assert (window.all_reduce(np.zeros(512)) == 3).all()
            window.close()
            comm.barrier()
            del window, x
        os.close(fd)

    on_threads(2, body)


def test_cycles_are_collected() -> None:
    class Holder:
        pass

    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        base = comm.window(16)
        for make in (lambda: comm.window(16), lambda: comm.register(base.numpy())):
            holder = Holder()
            holder.window = make()  # type: ignore[attr-defined]
            holder.view = holder.window[0]  # type: ignore[attr-defined]
            holder.array = holder.window.numpy()  # type: ignore[attr-defined]
            holder.self = holder  # type: ignore[attr-defined]
            seen = weakref.ref(holder.window)  # type: ignore[attr-defined]
            del holder
            gc.collect()
            assert seen() is None


def test_a_close_while_a_view_is_made_takes_no_memory_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's close() between the look at the address and the view."""
    capi = symm._capi  # type: ignore[attr-defined]
    look = capi.flat_window_data
    with symm.Comm(address(), 0, 1, name=unique_name()) as comm:
        window = comm.window(1 << 24)

        def close_then(handle: Any, rank: int) -> Any:
            where = look(handle, rank)
            window.close()
            return where

        monkeypatch.setattr(capi, "flat_window_data", close_then)
        view = window.local
        del window
        gc.collect()
        time.sleep(0.1)  # unmapping is a helper thread's work
        assert is_mapped(view.address)
        view.numpy()[:] = 7


def test_a_close_during_an_in_place_all_reduce_leaves_its_result() -> None:
    def body(comm: symm.Comm) -> None:
        window = comm.window(1000)
        window.numpy()[:] = 1 + comm.rank
        comm.barrier()
        if comm.rank == 1:
            time.sleep(0.3)  # the other one waits in its call meanwhile
        else:
            in_thread(lambda: (time.sleep(0.1), window.close()))
        result = window.all_reduce()
        assert (result.numpy() == 3).all()

    on_threads(2, body)


def test_sub_interpreters_are_refused() -> None:
    """What the module keeps is one for the process: two interpreters would mix their objects."""
    printed = script(
        """
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        code = '''
        try:
            import symm
        except ImportError as error:
            print("refused:", error)
        '''
        import textwrap
        other = interpreters.create()
        if sys.version_info >= (3, 13):
            interpreters.exec(other, textwrap.dedent(code))
        else:
            interpreters.run_string(other, textwrap.dedent(code))
        import symm
        with symm.Comm(symm.create_address("127.0.0.1"), 0, 1) as comm:
            import array
            x = array.array("f", [1, 2])
            comm.all_reduce(x, out=x)
        print("fine here")
        """
    )
    assert "refused:" in printed, printed
    assert "fine here" in printed


def test_close_during_a_call_of_another_thread() -> None:
    """close() never frees what a call is using; abort() ends the call."""
    ready = threading.Event()

    def body(comm: symm.Comm) -> None:
        if comm.rank == 1:
            ready.wait(DEADLINE)
            time.sleep(0.3)  # the other one waits in its call meanwhile
            comm.abort()
            return
        failures: list[Exception] = []

        def call() -> None:
            try:
                comm.all_reduce(np.ones(100000))
            except Exception as error:
                failures.append(error)

        thread = in_thread(call)
        time.sleep(0.1)
        comm.close()
        gc.collect()
        ready.set()
        thread.join(DEADLINE)
        assert not thread.is_alive()
        assert type(failures[0]) in (symm.AbortedError, symm.InvalidArgumentError)

    on_threads(2, body)


ORDERS = """
import gc, random, sys, symm, numpy as np
seed = int(sys.argv[1])
random.seed(seed)
address = symm.create_address("127.0.0.1")
for round in range(30):
    comm = symm.Comm(address, 0, 1, name=f"c{round}")
    things = {"comm": comm, "split": comm.split(0, name="s")}
    for i in range(3):
        window = comm.window(random.choice([0, 1, 100, 5000]), random.choice(["float32", "int8", "float64"]))
        things[f"w{i}"] = window
        things[f"v{i}"] = window[0]
        things[f"n{i}"] = window.numpy()
        things[f"m{i}"] = window[0].memoryview()
        things[f"d{i}"] = window[0].__dlpack__(max_version=random.choice([None, (1, 0)]))
        things[f"f{i}"] = np.from_dlpack(window[0])
        if window.nbytes:
            things[f"r{i}"] = comm.register(window.numpy())
            things[f"x{i}"] = things[f"r{i}"].numpy()
    if random.random() < 0.5:
        things["self"] = things
    del comm, window
    if random.random() < 0.3:
        del things
        gc.collect()
        continue
    names = [name for name in things if name != "self"]
    random.shuffle(names)
    for name in names:
        thing = things.pop(name)
        if random.random() < 0.3 and hasattr(thing, "close"):
            thing.close()
            if random.random() < 0.5:
                thing.close()
        if isinstance(thing, np.ndarray) and thing.flags.writeable:
            thing[...] = 1
        del thing
        if random.random() < 0.2:
            gc.collect()
    things.clear()
print("done", seed)
"""


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_ends(seed: int) -> None:
    assert script(ORDERS, str(seed), timeout=120) == f"done {seed}\n"


@pytest.mark.parametrize("keep", ["module", "cycle", "thread", "atexit", "exception", "weakref"])
def test_the_interpreter_ends_with_live_windows(keep: str) -> None:
    assert (
        script(
            """
            import atexit, sys, threading, time, weakref
            import numpy as np
            import symm
            keep = sys.argv[1]
            comm = symm.Comm(symm.create_address("127.0.0.1"), 0, 1)
            window = comm.window(1000)
            view, array, capsule = window[0], window.numpy(), window[0].__dlpack__(max_version=(1, 0))
            memory = window[0].memoryview()
            registered = comm.register(array)
            if keep == "cycle":
                class Holder: pass
                holder = Holder()
                holder.all = [comm, window, view, array, capsule, registered, holder]
                del comm, window, view, array, capsule, registered
            elif keep == "thread":
                def wait(held=(comm, window)):
                    held[0].all_reduce(np.ones(4))
                    time.sleep(1000)
                threading.Thread(target=wait, daemon=True).start()
            elif keep == "atexit":
                atexit.register(lambda: (comm.all_reduce(np.ones(4)), window.close(), comm.close()))
            elif keep == "weakref":
                weakref.finalize(view, print, "", end="")
            print("done", flush=True)
            if keep == "exception":
                raise SystemExit(0)
            """,
            keep,
        )
        == "done\n"
    )


def test_the_interpreter_ends_while_a_thread_waits_for_a_peer() -> None:
    """A daemon thread inside a call must not keep, nor crash, an interpreter that ends."""
    assert (
        script(
            """
            import threading, time
            import numpy as np
            import symm
            address = symm.create_address("127.0.0.1")
            comms = [None, None]
            def make(rank):
                comms[rank] = symm.Comm(address, rank, 2, timeout=30)
            threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            threading.Thread(target=lambda: comms[0].all_reduce(np.ones(10)), daemon=True).start()
            time.sleep(0.3)
            print("done", flush=True)
            """
        )
        == "done\n"
    )
