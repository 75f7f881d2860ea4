#!/usr/bin/env python3
"""One rank of an all-reduce, by Python's own ctypes and nothing else. (For everyday work there is
the package symm, in bindings/python; this is for where nothing may be installed.)

    python3 all_reduce.py tcp://127.0.0.1:29500 0 2 &
    python3 all_reduce.py tcp://127.0.0.1:29500 1 2

SYMM_LIBRARY: which library to load ("libsymm.so.0").
"""
import array
import ctypes
import os
import re
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_void_p

COUNT = 1000

# From symm.h; ctypes has no way to read a header.
SYMM_OK = 0
SYMM_CPU = -1
SYMM_FLOAT32 = 7
SYMM_SUM = 0


class CommOptions(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("nccl_path", c_char_p),
        ("error", c_char_p),
        ("error_size", c_size_t),
        ("scratch_bytes", c_size_t),
        ("timeout_ms", c_int32),
        ("wait_timeout_ms", c_int32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


def load(path):
    # CDLL, which releases the GIL during a call: with PyDLL a rank that waits would stop every
    # thread of the process, another rank's among them.
    lib = ctypes.CDLL(path)
    # Undeclared, ctypes passes and returns 32-bit ints, and cuts pointers in half.
    for name, result, *arguments in [
        ("symm_status_name", c_char_p, c_int32),
        ("symm_last_error", c_char_p),
        ("symm_comm_create", c_int, c_char_p, c_int32, c_int32, c_int32, POINTER(CommOptions),
         POINTER(c_void_p)),
        ("symm_comm_free", None, c_void_p),
        ("symm_window_alloc", c_int, c_void_p, c_size_t, c_void_p, POINTER(c_void_p)),
        ("symm_window_data", c_int, c_void_p, c_int32, POINTER(c_void_p)),
        ("symm_window_free", None, c_void_p),
        ("symm_all_reduce", c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
        ("symm_window_all_reduce", c_int, c_void_p, c_size_t, c_void_p, c_size_t, c_int, c_int,
         c_void_p),
    ]:
        function = getattr(lib, name)
        function.restype = result
        function.argtypes = arguments
    return lib


class SymmError(Exception):
    pass


def check(lib, status):
    # A Python thread is one thread of the system, so the last error here is that of the call above.
    if status != SYMM_OK:
        name = lib.symm_status_name(status).decode()
        raise SymmError("%s: %s" % (name, lib.symm_last_error().decode(errors="replace")))


def number(text):
    # ctypes would quietly keep the low 32 bits of anything larger.
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise SymmError("all_reduce: '%s' is not a rank or a size" % text)
    return int(text)


def fnv1a(data):
    digest = 14695981039346656037
    for byte in data:
        digest = (digest ^ byte) * 1099511628211 % 2**64
    return digest


def main(address, rank, size):
    lib = load(os.environ.get("SYMM_LIBRARY", "libsymm.so.0"))

    options = CommOptions(size=ctypes.sizeof(CommOptions), timeout_ms=60000)
    comm = c_void_p()
    check(lib, lib.symm_comm_create(address.encode(), rank, size, SYMM_CPU, byref(options),
                                    byref(comm)))

    # Memory that C can read and write: array's, by its buffer, without a copy.
    x = array.array("f", (1 / (1 + i + 1000 * rank) for i in range(COUNT)))
    total = (ctypes.c_float * COUNT)()
    check(lib, lib.symm_all_reduce(comm, x.buffer_info()[0], total, COUNT, SYMM_FLOAT32, SYMM_SUM,
                                   None))

    # The same from a window, memory that every rank sees: no copy on the way in.
    window = c_void_p()
    data = c_void_p()
    again = (ctypes.c_float * COUNT)()
    check(lib, lib.symm_window_alloc(comm, ctypes.sizeof(total), None, byref(window)))
    check(lib, lib.symm_window_data(window, rank, byref(data)))
    # from_address keeps nothing alive: `own` must not be used once the window is freed.
    own = (ctypes.c_float * COUNT).from_address(data.value)
    own[:] = x
    check(lib, lib.symm_window_all_reduce(window, 0, again, COUNT, SYMM_FLOAT32, SYMM_SUM, None))
    if bytes(total) != bytes(again):
        raise SymmError("all_reduce: the window's sum has other bits")

    digest = fnv1a(bytes(total))
    print("rank %d of %d: sum[0] = %.6f, digest %016x" % (rank, size, total[0], digest))
    lib.symm_window_free(window)
    lib.symm_comm_free(comm)


if __name__ == "__main__":
    try:
        if len(sys.argv) != 4:
            raise SymmError("usage: all_reduce.py ADDRESS RANK SIZE")
        main(sys.argv[1], number(sys.argv[2]), number(sys.argv[3]))
    except (SymmError, OSError) as error:  # OSError: the library is not there
        sys.exit(str(error))
