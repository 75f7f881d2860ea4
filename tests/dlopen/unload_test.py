#!/usr/bin/env python3
"""Unloading, forking and ending of hosts that load libsymm by dlopen. Needs build/dlopen/unload."""
import os
import shutil
import tempfile
import time
import unittest

import support
from mixed import run_ranks

UNLOAD = os.path.join(support.OUT, "unload")


class Base(unittest.TestCase):
    def all_end_well(self, command, ranks=2, env=None):
        results = run_ranks([command] * ranks, seconds=60, env=env)
        for rank, ended in enumerate(results):
            self.assertFalse(ended.late, "rank %d hangs: %s" % (rank, ended.err))
            self.assertEqual((ended.status, ended.err), (0, ""), "rank %d" % rank)
        return results


class UnloadedByC(Base):
    def case(self, name, ranks=2):
        self.all_end_well([UNLOAD, name, support.LIBRARY], ranks)

    def test_again_and_again_leaves_no_thread_and_no_descriptor(self):
        self.case("again-and-again")

    def test_in_threads_that_end_is_safe(self):
        self.case("in-threads-that-end")

    def test_under_a_live_communicator_leaves_that_usable(self):
        self.case("with-a-live-communicator")

    def test_before_a_thread_that_used_it_ends_is_safe(self):
        self.case("before-a-thread-that-used-it-ends")

    def test_and_main_returns_with_live_handles_is_clean(self):
        self.case("then-main-returns")


class LoadedTwice(Base):
    def test_from_two_files_it_is_two_libraries_whose_ranks_meet(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = shutil.copy(os.path.realpath(support.LIBRARY), directory)
            self.all_end_well([UNLOAD, "two-copies", support.LIBRARY], env={"SYMM_TEST_COPY": copy})


class HostThatForks(Base):
    def case(self, name, ranks=2):
        self.all_end_well([UNLOAD, name, support.LIBRARY], ranks)

    def test_before_loading_has_ranks_in_its_children(self):
        self.case("first-in-a-forked-child")

    def test_between_loading_and_creation_has_ranks_on_both_sides(self):
        self.case("loaded-before-a-fork")

    def test_while_it_has_a_communicator_may_unload_and_load_in_the_child(self):
        self.case("in-a-forked-child-of-a-user")

    def test_or_spawns_another_program_hands_it_no_descriptor(self):
        self.case("descriptors")

    def test_and_becomes_another_program_is_dead_to_its_peers_at_once(self):
        started = time.monotonic()
        self.case("becomes-another-program", 3)
        self.assertLess(time.monotonic() - started, 20)


class HostThatExits(Base):
    def test_while_a_call_waits_is_clean_and_its_peers_end_too(self):
        for ranks in 2, 3, 5:
            with self.subTest(ranks=ranks):
                self.all_end_well([UNLOAD, "exit-while-a-call-waits", support.LIBRARY], ranks)


class HostInAnInterpreter(Base):
    def case(self, client, *command):
        if client not in support.clients():
            self.skipTest("%s is not to be had here" % client)
        interpreter, script, *case = command
        return self.all_end_well([interpreter, os.path.join(support.HERE, script), *case])

    def test_python_unloads_it_under_a_live_communicator(self):
        self.case("ctypes", "python3", "host.py", "unload")

    def test_luajit_unloads_it_under_a_live_communicator(self):
        self.case("luajit", "luajit", "host.lua")

    def test_node_unloads_it_under_a_live_communicator(self):
        self.case("node", "node", "host.js", "unload")

    def test_python_forks_before_and_after_creation(self):
        self.case("ctypes", "python3", "host.py", "fork")

    def test_python_ends_while_a_daemon_thread_waits(self):
        self.exits_before_its_peer("ctypes", "python3", "host.py", "exit-in-wait")

    def test_node_exits_while_an_async_call_waits(self):
        self.exits_before_its_peer("node", "node", "host.js", "exit-in-wait")

    def exits_before_its_peer(self, client, *command):
        first, last = self.case(client, *command)
        # The peer stays for 4 s, so that its leaving is not what ends the wait.
        self.assertLess(first.when, last.when - 1)


if __name__ == "__main__":
    support.main()
