"""env:// where the store at the port ends, comes again, or keeps what a failed call left. These need
no PyTorch: the store is a double of its protocol, and the ranks are real processes."""
import os
import subprocess
import sys
import time
import unittest

from jobs import HERE, clean_environment, free_port, run_tests
from store_double import Store

LIMIT = 60


class Ranks:
    """Processes that run a piece of Python each, with `symm` at hand."""

    def __init__(self, port, size, agent=False):
        self.common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "PYTHONPATH": HERE,
                       "TORCHELASTIC_USE_AGENT_STORE": str(agent)}
        self.processes = {}

    def start(self, rank, program, **environment):
        self.processes[rank] = subprocess.Popen(
            [sys.executable, "-uc", "import os, socket, time\nimport symm_ctypes as symm\n" + program],
            env=clean_environment(RANK=str(rank), **self.common, **environment), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def output(self, rank):
        return self.processes[rank].communicate(timeout=LIMIT)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            process.kill()
            process.communicate()


MEETS = "c = symm.Comm(timeout_ms=20000); print(c.sum([1.0])); c.free()"


class StoresThatChange(unittest.TestCase):
    def test_one_that_ends_leaves_the_port_to_rank_0(self):
        """A rank that still found the program's last store must not wait for it for ever."""
        store = Store()
        with Ranks(store.port, 2) as ranks:
            ranks.start(1, MEETS)
            while store.connections < 3:
                time.sleep(0.01)
            store.close()
            time.sleep(0.3)
            ranks.start(0, MEETS)
            for rank in 0, 1:
                self.assertEqual(ranks.output(rank), "[2.0]\n")

    def test_a_failed_call_may_be_repeated_at_once(self):
        """Also while rank 0's entry of the last call is still there."""
        store = Store()
        program = """
if os.environ["RANK"] == "2": time.sleep(1)
try: symm.Comm(timeout_ms=20000 + (os.environ["RANK"] == "1"))
except symm.Failed as failure: print(failure.status)
""" + MEETS
        with Ranks(store.port, 3, agent=True) as ranks:
            for rank in range(3):
                ranks.start(rank, program)
            for rank in range(3):
                self.assertEqual(ranks.output(rank), "INVALID_ARGUMENT\n[3.0]\n")
        self.assertEqual(store.values, {})

    def test_who_comes_late_to_a_failed_call_is_told(self):
        store = Store()
        program = """
rank = int(os.environ["RANK"])
if rank == 2: time.sleep(4.5)
start = time.monotonic()
try: symm.Comm(timeout_ms=30000 + (rank == 1))
except symm.Failed as failure: print(failure.status, rank == 2 and time.monotonic() - start < 2, flush=True)
if rank != 2: time.sleep(60)
"""
        with Ranks(store.port, 3, agent=True) as ranks:
            for rank in range(3):
                ranks.start(rank, program)
            self.assertEqual(ranks.output(2), "INVALID_ARGUMENT True\n")

    def test_agents_may_have_counted_different_restarts(self):
        store = Store()
        with Ranks(store.port, 2, agent=True) as ranks:
            for rank in 0, 1:
                ranks.start(rank, MEETS, TORCHELASTIC_RESTART_COUNT=str(rank))
            for rank in 0, 1:
                self.assertEqual(ranks.output(rank), "[2.0]\n")

    def test_the_port_is_free_when_rank_0_returns(self):
        """torch.distributed.init_process_group may be the very next call."""
        program = """
refused = 0
for _ in range(20):
    c = symm.Comm(timeout_ms=20000)
    if c.rank == 0:
        with socket.socket() as torchs:
            torchs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try: torchs.bind(("0.0.0.0", int(os.environ["MASTER_PORT"])))
            except OSError: refused += 1
    c.sum([1.0])
    c.free()
print(refused)
"""
        with Ranks(free_port(), 8) as ranks:
            for rank in range(8):
                ranks.start(rank, program)
            for rank in range(8):
                self.assertEqual(ranks.output(rank), "0\n")

    def test_a_rank_that_waits_does_not_connect_again_and_again(self):
        store = Store()
        with Ranks(store.port, 2, agent=True) as ranks:
            ranks.start(1, MEETS)
            time.sleep(2)
            self.assertLessEqual(store.connections, 2)
            ranks.start(0, MEETS)
            self.assertEqual(ranks.output(1), "[2.0]\n")


if __name__ == "__main__":
    run_tests()
