"""A rank, by ctypes, that is no good company: once it is in the communicator it

    dies        by SIGKILL
    stalls      and takes no part in anything, for ever
    mismatches  by an all-reduce of another count than the program's

Usage: peer.py MODE WAIT_TIMEOUT_MS ADDRESS RANK SIZE
"""
import ctypes
import os
import signal
import sys
import time
from ctypes import byref, c_void_p

import support
from support import ctypes_client as symm


def main(mode, wait_timeout_ms, address, rank, size):
    lib = symm.load(support.LIBRARY)
    options = symm.CommOptions(size=ctypes.sizeof(symm.CommOptions), timeout_ms=60000,
                               wait_timeout_ms=wait_timeout_ms)
    comm = c_void_p()
    symm.check(lib, lib.symm_comm_create(address.encode(), rank, size, symm.SYMM_CPU,
                                         byref(options), byref(comm)))
    if mode == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "mismatches":
        values = (ctypes.c_float * 999)()
        lib.symm_all_reduce(comm, values, values, 999, symm.SYMM_FLOAT32, symm.SYMM_SUM, None)
    while True:
        time.sleep(1)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
