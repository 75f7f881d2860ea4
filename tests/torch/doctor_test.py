"""symm-doctor where a store has the port. No PyTorch is needed: the store is a double of its protocol."""
import json
import subprocess
import unittest

from jobs import clean_environment, doctor, run_tests
from store_double import Store

LIMIT = 60


class Doctors:
    """symm-doctor as every rank of a job over one store."""

    def __init__(self, port, size, agent, *arguments):
        self.processes = [
            subprocess.Popen([doctor(), "--json", *arguments], text=True, stdout=subprocess.PIPE,
                             env=clean_environment(RANK=str(rank), WORLD_SIZE=str(size),
                                                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                                   TORCHELASTIC_USE_AGENT_STORE=str(agent)))
            for rank in range(size)]

    def findings(self):
        """Of each rank, by name."""
        try:
            said = [json.loads(process.communicate(timeout=LIMIT)[0]) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [{check["name"]: check for check in one["checks"]} for one in said]


class WithAStore(unittest.TestCase):
    def test_one_is_recognised(self):
        store = Store()
        for agent, words in (True, "torchrun's store"), (False, "a PyTorch store listens"):
            with self.subTest(agent=agent):
                for found in Doctors(store.port, 2, agent, "--no-trials").findings():
                    self.assertEqual(found["meeting place"]["status"], "ok")
                    self.assertIn(words, found["meeting place"]["detail"])
        self.assertEqual(store.values, {})

    def test_the_ranks_meet_by_way_of_it_and_leave_nothing(self):
        for agent in True, False:
            with self.subTest(agent=agent):
                store = Store()
                for found in Doctors(store.port, 3, agent).findings():
                    self.assertEqual(found["meeting"]["status"], "ok", found["meeting"])
                    self.assertIn("all 3 ranks met", found["meeting"]["detail"])
                    self.assertEqual(found["symm of all ranks"]["status"], "ok")
                self.assertEqual(store.values, {})

    def test_one_that_has_ended_is_missed(self):
        store = Store()
        store.close()
        for found in Doctors(store.port, 2, True).findings():
            self.assertEqual(found["meeting"]["status"], "failure")
            self.assertIn("TORCHELASTIC_USE_AGENT_STORE is True, but no store can be reached",
                          found["meeting place"]["detail"])
            self.assertIn("torchrun", found["meeting place"]["remedy"])


if __name__ == "__main__":
    run_tests()
