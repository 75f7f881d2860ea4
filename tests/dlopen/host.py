"""Python hosts that load libsymm by ctypes, and unload it, fork or end when that is least
convenient. See unload_test.py.

Usage: host.py CASE ADDRESS RANK SIZE
"""
import _ctypes
import ctypes
import os
import sys
import threading
import time
from ctypes import byref, c_void_p

import support
from support import ctypes_client as symm

ADDRESS, RANK, SIZE = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def create(lib, name=b"", rank=RANK, size=SIZE):
    comm = c_void_p()
    options = symm.CommOptions(size=ctypes.sizeof(symm.CommOptions), name=name, timeout_ms=30000,
                               wait_timeout_ms=30000)
    symm.check(lib, lib.symm_comm_create(ADDRESS.encode(), rank, size, symm.SYMM_CPU,
                                         byref(options), byref(comm)))
    return comm


def adds_up(lib, comm, rank=RANK, size=SIZE):
    value, total = ctypes.c_float(rank), ctypes.c_float()
    symm.check(lib, lib.symm_all_reduce(comm, byref(value), byref(total), 1, symm.SYMM_FLOAT32,
                                        symm.SYMM_SUM, None))
    assert total.value == size * (size - 1) / 2, total.value


def unload():
    comm = None
    for _ in range(3):
        lib = symm.load(support.LIBRARY)
        comm = comm or create(lib)
        adds_up(lib, comm)
        _ctypes.dlclose(lib._handle)
    # Ends with a live communicator and no library.


def fork():
    """As multiprocessing does, which data loaders are built on: before and after creation."""
    lib = symm.load(support.LIBRARY)
    child = os.fork()
    both = create(lib, b"both", 2 * RANK + (child == 0), 2 * SIZE)
    adds_up(lib, both, 2 * RANK + (child == 0), 2 * SIZE)
    if child == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    comm = create(lib, b"parents")
    child = os.fork()
    if child == 0:
        number = ctypes.c_int32()
        assert lib.symm_comm_rank(comm, byref(number)) == -1  # SYMM_INVALID_ARGUMENT
        adds_up(lib, create(lib, b"children"))
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    adds_up(lib, comm)


def exit_in_wait():
    """Rank 0's main thread ends while a daemon thread waits in a call that no other rank makes."""
    lib = symm.load(support.LIBRARY)
    comm = create(lib)
    adds_up(lib, comm)
    if RANK == 0:
        threading.Thread(target=adds_up, args=(lib, comm), daemon=True).start()
        time.sleep(0.3)
    else:
        time.sleep(4)


{"unload": unload, "fork": fork, "exit-in-wait": exit_in_wait}[sys.argv[1]]()
