"""Where things are, and how these tests end. Everything built lies in build/dlopen, as
examples/dlopen/build.sh left it."""
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True  # no __pycache__ among the sources

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CLIENTS = os.path.join(ROOT, "examples", "dlopen")
OUT = os.path.join(ROOT, "build", "dlopen")
LIBRARY = os.path.join(OUT, "libsymm.so.0")

# For every process that is started from here.
os.environ.update(SYMM_LIBRARY=LIBRARY, SYMM_DECLARATIONS=os.path.join(OUT, "symm.ffi"),
                  SYMM_NODE_CLIENT=os.path.join(OUT, "node"),
                  NODE_PATH=os.path.join(OUT, "node", "node_modules"), PYTHONDONTWRITEBYTECODE="1")


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


ctypes_client = module("ctypes_client", os.path.join(CLIENTS, "all_reduce.py"))
sys.path.insert(0, os.path.join(ROOT, "examples", "languages"))


def clients():
    """Name -> command of every example program that could be made ready here."""
    with open(os.path.join(OUT, "clients.txt")) as lines:
        words = [line.rstrip("\n").split("\t") for line in lines]
    return {name: command for name, *command in words}


class _Names(unittest.TextTestResult):
    def getDescription(self, test):
        return test.id().split(".", 1)[-1]  # without the module's name


def main():
    """Runs the tests of the calling module and ends with the line 'N passed, N failed'."""
    program = unittest.main(
        exit=False, testRunner=unittest.TextTestRunner(verbosity=2, resultclass=_Names))
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    passed = result.testsRun - failed - len(result.skipped)
    sys.stderr.flush()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or passed == 0 else 0)
