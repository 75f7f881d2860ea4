"""What the tests of env:// beside PyTorch share."""
import os
import re
import socket
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_environment(**more):
    environment = {name: value for name, value in os.environ.items()
                   if not re.match(r"RANK$|WORLD_SIZE$|LOCAL_|MASTER_|TORCHELASTIC_|SYMM_TOKEN", name)}
    environment.update({"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}, **more)
    return environment


def doctor():
    """symm-doctor of the build that SYMM_LIBRARY is in."""
    return os.path.join(os.path.dirname(os.environ["SYMM_LIBRARY"]), "examples", "symm-doctor")


def run_tests():
    """Those of the program's own file; ends with their count."""
    result = unittest.main(verbosity=2, exit=False).result
    bad = len(result.failures) + len(result.errors)
    for test, reason in result.skipped:
        print(f"SKIPPED {test}: {reason}")
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed")
    sys.exit(bad != 0)
