"""As much of symm.h as these tests call, by ctypes: the Python package has tests of its own."""
import ctypes as c
import os

FROM_ADDRESS = -1
CPU = -1
FLOAT32, SUM = 7, 0
STATUS = {0: "OK", -1: "INVALID_ARGUMENT", -4: "SYSTEM", -7: "TIMEOUT", -8: "PEER"}

lib = c.CDLL(os.environ["SYMM_LIBRARY"])
lib.symm_last_error.restype = c.c_char_p


class Options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("name", c.c_char_p), ("nccl_path", c.c_char_p),
        ("error", c.c_char_p), ("error_size", c.c_size_t), ("scratch_bytes", c.c_size_t),
        ("timeout_ms", c.c_int32), ("wait_timeout_ms", c.c_int32), ("flags", c.c_uint32),
        ("reserved", c.c_uint32)]


class Failed(Exception):
    def __init__(self, status):
        self.status = STATUS.get(status, str(status))
        super().__init__(f"{self.status}: {lib.symm_last_error().decode()}")


def check(status):
    if status != 0:
        raise Failed(status)


class Comm:
    def __init__(self, address="env://", rank=FROM_ADDRESS, size=FROM_ADDRESS, name="",
                 timeout_ms=60000):
        options = Options(size=c.sizeof(Options), name=name.encode(), timeout_ms=timeout_ms)
        self.handle = c.c_void_p()
        check(lib.symm_comm_create(address.encode(), rank, size, CPU, c.byref(options),
                                   c.byref(self.handle)))
        number = c.c_int32()
        check(lib.symm_comm_rank(self.handle, c.byref(number)))
        self.rank = number.value
        check(lib.symm_comm_size(self.handle, c.byref(number)))
        self.size = number.value

    def split(self, color, key=0):
        child = object.__new__(Comm)
        child.handle = c.c_void_p()
        check(lib.symm_comm_split(self.handle, color, key, None, c.byref(child.handle)))
        child.rank, child.size = -1, -1
        return child

    def sum(self, values):
        floats = (c.c_float * len(values))(*values)
        check(lib.symm_all_reduce(self.handle, floats, floats, c.c_size_t(len(values)), FLOAT32,
                                  SUM, None))
        return list(floats)

    def free(self):
        lib.symm_comm_free(self.handle)
        self.handle = None
