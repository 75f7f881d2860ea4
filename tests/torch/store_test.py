"""env:// beside PyTorch: its agent's store, its program's own store, and none yet.

Every case is a job of real processes, most of them started by torchrun.
"""
import os
import socket
import subprocess
import sys
import time
import unittest

from jobs import HERE, clean_environment, doctor, free_port, run_tests

WORKER = os.path.join(HERE, "worker.py")
LIMIT = 120


def run(command, environment):
    return subprocess.run(command, env=environment, text=True, timeout=LIMIT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Jobs(unittest.TestCase):
    def finished(self, output, ranks):
        for rank in range(ranks):
            self.assertIn(f"rank {rank} ok", output)

    def torchrun(self, ranks, *steps, options=(), **environment):
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
                   *options, WORKER, *steps]
        done = run(command, clean_environment(**environment))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.finished(done.stdout, ranks)

    def by_hand(self, ranks, *steps, **environment):
        """RANK, WORLD_SIZE and the rest set, by no launcher: the program keeps the store."""
        port = str(free_port())
        processes = [subprocess.Popen([sys.executable, WORKER, *steps], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      env=clean_environment(RANK=str(rank), WORLD_SIZE=str(ranks),
                                                            MASTER_ADDR="127.0.0.1",
                                                            MASTER_PORT=port, **environment))
                     for rank in range(ranks)]
        output = ""
        try:
            for process in processes:
                output += process.communicate(timeout=LIMIT)[0]
        finally:
            for process in processes:
                process.kill()
        for process in processes:
            self.assertEqual(process.returncode, 0, output)
        self.finished(output, ranks)


class UnderTorchrun(Jobs):
    standalone = ("--standalone",)

    def test_before_torch_after_it_and_beside_it(self):
        self.torchrun(3, "late", "symm_create=first", "torch_init", "torch_reduce",
                      "symm_create=second", "beside", "entries", options=self.standalone)

    def test_the_static_rendezvous_and_a_store_without_libuv(self):
        self.torchrun(2, "torch_init", "symm_create", "beside",
                      options=("--rdzv-backend=static", "--master-addr=127.0.0.1",
                               f"--master-port={free_port()}"), USE_LIBUV="0")

    def test_one_communicator_after_the_other_and_subgroups_without_torch(self):
        self.torchrun(4, "symm_again", "symm_create", "symm_split", options=self.standalone)

    def test_a_job_that_torchrun_restarts_meets_anew(self):
        self.torchrun(2, "fail_once", "symm_create",
                      options=(*self.standalone, "--max-restarts=1", "--monitor-interval=0.1"))

    def test_two_jobs_of_one_host_stay_apart(self):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                   "--standalone", WORKER, "symm_create", "symm_again"]
        jobs = [subprocess.Popen(command, env=clean_environment(), text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for _ in range(2)]
        for job in jobs:
            output = job.communicate(timeout=LIMIT)[0]
            self.assertEqual(job.returncode, 0, output)
            self.finished(output, 2)

    def test_symm_doctor_as_every_rank(self):
        done = run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2",
                    *self.standalone, "--no-python", doctor()], clean_environment())
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("all 2 ranks met"), 2, done.stdout)
        self.assertEqual(done.stdout.count("as torchrun says"), 2, done.stdout)


class WithAStoreOfTheProgram(Jobs):
    def test_torch_first(self):
        self.by_hand(3, "torch_init", "symm_create", "beside", "entries", SYMM_TOKEN="a secret")

    def test_torch_first_with_a_store_without_libuv(self):
        self.by_hand(2, "torch_init", "symm_create", "beside", USE_LIBUV="0")

    def test_symm_first_leaves_the_port_to_torch(self):
        self.by_hand(2, "symm_create", "torch_init", "beside", "symm_create=again", "beside")


class Misconfigured(Jobs):
    def failure(self, **environment):
        """What one rank of two is told by env:// within 3 s."""
        program = ("import symm_ctypes as symm\n"
                   "try: symm.Comm(timeout_ms=3000)\n"
                   "except symm.Failed as failure: print(failure)\n")
        start = time.monotonic()
        done = run([sys.executable, "-c", program],
                   clean_environment(PYTHONPATH=HERE, WORLD_SIZE="2", **environment))
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_an_agents_store_that_is_not_there(self):
        port = free_port()
        for rank in "0", "1":
            with self.subTest(rank=rank):
                told = self.failure(RANK=rank, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                    TORCHELASTIC_USE_AGENT_STORE="True")
                self.assertIn("TIMEOUT", told)
                self.assertIn(f"the store at 127.0.0.1:{port}: Connection refused", told)
                self.assertIn("MASTER_ADDR and MASTER_PORT", told)

    def test_something_else_at_the_port(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            told = self.failure(RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                TORCHELASTIC_USE_AGENT_STORE="True")
            self.assertIn("TIMEOUT", told)
            self.assertIn("does not answer", told)

    def test_symm_doctor_recognises_a_store(self):
        import torch.distributed as dist
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        done = run([doctor(), "--no-trials"],
                   clean_environment(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                                     MASTER_PORT=str(store.port)))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("a PyTorch store listens at 127.0.0.1", done.stdout)
        self.assertEqual(store.num_keys(), 0)

    def test_rank_0_that_does_not_come(self):
        import torch.distributed as dist
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        told = self.failure(RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port),
                            TORCHELASTIC_USE_AGENT_STORE="True")
        self.assertIn("TIMEOUT", told)
        self.assertIn("rank 0 has left no word in the store", told)

    def test_an_entry_of_a_rank_0_that_died(self):
        """What a dead rank 0 left leads nobody astray: the next one writes over it."""
        import torch.distributed as dist
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
                  "TORCHELASTIC_USE_AGENT_STORE": "True", "PYTHONPATH": HERE}
        dead = subprocess.Popen([sys.executable, "-c", "import symm_ctypes as s; s.Comm()"],
                                env=clean_environment(RANK="0", **common))
        for _ in range(200):
            if store.num_keys() > 0:
                break
            time.sleep(0.05)
        self.assertEqual(store.num_keys(), 1)
        dead.kill()
        dead.wait()
        self.assertEqual(store.num_keys(), 1)
        live = "import symm_ctypes as s; c = s.Comm(); print(c.sum([1.0])); c.free()"
        ranks = []
        for rank in "1", "0":
            ranks.append(subprocess.Popen([sys.executable, "-c", live], text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          env=clean_environment(RANK=rank, **common)))
            time.sleep(0.3)
        for rank in ranks:
            self.assertEqual(rank.communicate(timeout=LIMIT)[0], "[2.0]\n")
        self.assertEqual(store.num_keys(), 0)


if __name__ == "__main__":
    run_tests()
