"""ctypes: the library is unloaded under a live communicator and loaded again. See unload_test.py."""
import _ctypes
import ctypes
import sys
from ctypes import byref, c_void_p

import support
from support import ctypes_client as symm


def adds_up(lib, comm, rank, size):
    value, total = ctypes.c_float(rank), ctypes.c_float()
    symm.check(lib, lib.symm_all_reduce(comm, byref(value), byref(total), 1, symm.SYMM_FLOAT32,
                                        symm.SYMM_SUM, None))
    assert total.value == size * (size - 1) / 2, total.value


def main(address, rank, size):
    comm = c_void_p()
    for turn in range(3):
        lib = symm.load(support.LIBRARY)
        if turn == 0:
            symm.check(lib, lib.symm_comm_create(address.encode(), rank, size, symm.SYMM_CPU, None,
                                                 byref(comm)))
        adds_up(lib, comm, rank, size)
        _ctypes.dlclose(lib._handle)
    # Ends with a live communicator and no library.


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
