"""NCCL beside PyTorch: one copy in the process, whoever loads it first. No GPU is needed: NCCL is
loaded, and nothing of it that works is called."""
import json
import os
import subprocess
import sys
import unittest

from jobs import clean_environment, run_tests

HERE = os.path.dirname(os.path.abspath(__file__))

# What every process below does after its imports.
COMPARE = """
import ctypes, json, os
def address(handle, name):
    return ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
torchs = ctypes.CDLL("libtorch_cuda.so", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
version = ctypes.c_int()
torchs.ncclGetVersion(ctypes.byref(version))
mapped = {line.split()[-1] for line in open("/proc/self/maps") if "libnccl.so" in line}
print(json.dumps({"nccl": nccl, "torchs": hex(address(torchs, "ncclGetVersion")),
                  "version": version.value, "mapped": sorted(mapped)}))
"""
REPORT = """
import ctypes, json, symm_ctypes
def report():
    needed = ctypes.c_size_t()
    symm_ctypes.check(symm_ctypes.lib.symm_report(None, None, ctypes.c_size_t(0),
                                                  ctypes.byref(needed)))
    text = ctypes.create_string_buffer(needed.value)
    symm_ctypes.check(symm_ctypes.lib.symm_report(None, text, needed, ctypes.byref(needed)))
    return json.loads(text.value)
nccl = report()["nccl"]
"""


def has_cuda_torch():
    import torch

    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    return os.path.exists(os.path.join(folder, "libtorch_cuda.so"))


@unittest.skipUnless(has_cuda_torch(), "this PyTorch is built without CUDA, and so without NCCL")
class Nccl(unittest.TestCase):
    def facts(self, program, **environment):
        done = subprocess.run([sys.executable, "-c", program], text=True, timeout=120, cwd=HERE,
                              env=clean_environment(VIRTUAL_ENV=sys.prefix, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def one_copy(self, facts, how):
        nccl = facts["nccl"]
        self.assertTrue(nccl["available"], nccl)
        self.assertEqual(nccl["how"], how)
        self.assertEqual(nccl["ncclGetVersion"], facts["torchs"])
        self.assertEqual(len(facts["mapped"]), 1, facts["mapped"])
        major, minor, patch = (int(part) for part in nccl["version"].split("."))
        self.assertEqual(major * 10000 + minor * 100 + patch, facts["version"])

    def test_torch_first(self):
        self.one_copy(self.facts("import torch\n" + REPORT + COMPARE), "already loaded")

    def test_symm_first(self):
        self.one_copy(self.facts(REPORT + "import torch\n" + COMPARE), "Python package")

    def test_windows_are_the_real_librarys_too_unless_a_variable_forbids_them(self):
        program = REPORT + "print(json.dumps(nccl))"
        self.assertEqual(self.facts(program)["windows"], {"available": True})
        for variable in ("NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"):
            windows = self.facts(program, **{variable: "0"})["windows"]
            self.assertEqual(windows, {"available": False,
                                       "reason": f"{variable}=0 switches them off"})


if __name__ == "__main__":
    run_tests()
