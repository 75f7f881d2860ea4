#!/usr/bin/env python3
"""Every program in examples/dlopen: its result, and what it says when something is wrong."""
import json
import os
import sys
import time
import unittest

import support
import reference
from mixed import Processes, run_ranks

PEER = [sys.executable, os.path.join(support.HERE, "peer.py")]
DEFAULT_WAIT_MS = "600000"  # options must be equal on every rank: the programs leave it at 0


class Client:
    """What holds for every one of them; each has a class of its own below."""

    def one_line(self, ended, *parts):
        self.assertFalse(ended.late, "hangs; it wrote: " + ended.err)
        self.assertEqual(ended.status, 1, ended.err)
        self.assertEqual(ended.out, "")
        self.assertEqual(len(ended.err.splitlines()), 1, ended.err)
        for part in parts:
            self.assertIn(part, ended.err)

    def alone(self, *arguments, env=None):
        with Processes() as processes:
            process = processes.start([*self.command, *arguments], env)
            return processes.finish(process, time.monotonic() + 30)

    def beside(self, mode, own_rank):
        """The program as one of two ranks, the other of which misbehaves."""
        with Processes() as processes:
            address = processes.address()
            peer = processes.start([*PEER, mode, DEFAULT_WAIT_MS, address, str(1 - own_rank), "2"])
            own = processes.start([*self.command, address, str(own_rank), "2"])
            ended = processes.finish(own, time.monotonic() + 60)
            processes.kill(peer)
            self.assertEqual(processes.read(peer.err), "")
            return ended

    def test_two_ranks_print_what_the_reference_does(self):
        results = run_ranks([self.command] * 2)
        for ended, line in zip(results, reference.lines(2)):
            self.assertEqual((ended.status, ended.err, ended.out), (0, "", line + "\n"))

    def test_a_bad_address_is_told_with_the_librarys_message(self):
        self.one_line(self.alone("bogus", "0", "2"), "SYMM_INVALID_ARGUMENT: symm_comm_create",
                      'address "bogus"', "tcp://host:port")

    def test_a_bad_rank_is_told_with_the_librarys_message(self):
        self.one_line(self.alone("file:///tmp/symm-nobody", "5", "2"),
                      "SYMM_INVALID_ARGUMENT: symm_comm_create", "rank 5 of size 2")

    def test_a_rank_beyond_32_bits_is_refused_not_cut(self):
        self.one_line(self.alone("file:///tmp/symm-nobody", "4294967296", "1"), "'4294967296'")

    def test_a_library_that_is_not_there_is_named(self):
        self.one_line(self.alone("bogus", "0", "1", env={"SYMM_LIBRARY": "/no/libsymm.so.0"}),
                      "/no/libsymm.so.0", "No such file")

    def test_the_death_of_a_peer_is_told_with_its_rank(self):
        for own_rank in 0, 1:
            with self.subTest(own_rank=own_rank):
                self.one_line(self.beside("dies", own_rank), "SYMM_PEER: ",
                              "rank %d" % (1 - own_rank))

    def test_another_call_of_a_peer_is_a_mismatch(self):
        self.one_line(self.beside("mismatches", 0), "SYMM_MISMATCH: ", "999", "1000")


for name, command in support.clients().items():
    class_name = "Client_" + name.replace("-", "_")
    globals()[class_name] = type(class_name, (Client, unittest.TestCase), {"command": command})


@unittest.skipUnless("node-async" in support.clients(), "Node.js is not to be had here")
class NodeAsync(unittest.TestCase):
    def test_a_wait_that_times_out_leaves_the_event_loop_running_and_its_status_suffices(self):
        with Processes() as processes:
            address = processes.address()
            processes.start([*PEER, "stalls", "700", address, "1", "2"])
            ended = processes.finish(
                processes.start(["node", os.path.join(support.HERE, "wait.js"), "700", address,
                                 "0", "2"]),
                time.monotonic() + 60)
        self.assertEqual((ended.status, ended.err), (0, ""))
        seen = json.loads(ended.out)
        self.assertEqual(seen["status"], "SYMM_TIMEOUT")
        self.assertEqual(seen["sticky"]["status"], "SYMM_TIMEOUT")
        self.assertIn("rank 1", seen["sticky"]["message"])
        self.assertGreaterEqual(seen["ticks"], 10)
        # Why the status has to suffice: the failure happened on another thread.
        self.assertEqual(seen["last_error"], "")


if __name__ == "__main__":
    support.main()
