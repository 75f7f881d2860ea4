#!/usr/bin/env python3
"""mixed.py, which judges ranks of several languages, and reference.py, by which it does."""
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support
import reference
from mixed import Processes

MIXED = [sys.executable, "-B", os.path.join(support.ROOT, "examples", "languages", "mixed.py")]
HONEST = shlex.join([sys.executable, os.path.join(support.CLIENTS, "all_reduce.py")])
# The right program, but what it prints is changed on the way.
LIAR = shlex.join(["sh", "-c", "%s \"$@\" | sed 's/digest ...../digest 00000/'" % HONEST, "sh"])

# The same sums by the C compiler's floats, whose rounding is the processor's.
IN_C = r"""
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  const int size = argc > 1 ? atoi(argv[1]) : 0;
  volatile float sum[1000];
  uint64_t digest = UINT64_C(14695981039346656037);
  for (int i = 0; i < 1000; ++i) {
    sum[i] = 1.0f / (float)(1 + i);
    for (int rank = 1; rank < size; ++rank) sum[i] += 1.0f / (float)(1 + i + 1000 * rank);
    const volatile unsigned char* byte = (const volatile unsigned char*)&sum[i];
    for (int b = 0; b < 4; ++b) digest = (digest ^ byte[b]) * UINT64_C(1099511628211);
  }
  for (int rank = 0; rank < size; ++rank)
    printf("rank %d of %d: sum[0] = %.6f, digest %016" PRIx64 "\n", rank, size, sum[0], digest);
  return 0;
}
"""


def mixed(*arguments):
    return subprocess.run([*MIXED, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, universal_newlines=True)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Reference(unittest.TestCase):
    def test_is_what_a_c_compilers_floats_give(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "sums")
            with open(path + ".c", "w") as source:
                source.write(IN_C)
            subprocess.run(["cc", "-O0", path + ".c", "-o", path], check=True)
            for size in 1, 2, 3, 5, 8, 64:
                printed = subprocess.run([path, str(size)], stdout=subprocess.PIPE, check=True)
                self.assertEqual(printed.stdout.decode().splitlines(), reference.lines(size))


class Mixed(unittest.TestCase):
    def fails(self, result, *parts):
        self.assertEqual(result.returncode, 1, result)
        self.assertNotIn("the same bits", result.stdout)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_prints_every_ranks_line_behind_its_language(self):
        result = mixed("one=" + HONEST, "other=" + HONEST)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        first, second = reference.lines(2)
        self.assertEqual(result.stdout.splitlines()[:2], ["one    " + first, "other  " + second])
        self.assertIn("the same bits", result.stdout)

    def test_names_the_one_that_deviates_and_no_other(self):
        result = mixed("honest=" + HONEST, "liar=" + LIAR, "third=" + HONEST)
        self.fails(result, "rank 1, liar, deviates")
        self.assertNotIn("honest", result.stderr)
        self.assertNotIn("third", result.stderr)

    def test_is_not_content_with_ranks_that_agree_on_what_is_wrong(self):
        self.fails(mixed("one=" + LIAR, "other=" + LIAR), "rank 0, one, deviates",
                   "rank 1, other, deviates")

    def test_names_one_that_prints_more_than_its_line(self):
        chatty = shlex.join(["sh", "-c", "echo hello; exec %s \"$@\"" % HONEST, "sh"])
        self.fails(mixed("honest=" + HONEST, "chatty=" + chatty), "rank 1, chatty, deviates")

    def test_names_one_that_dies_and_those_that_fail_with_it(self):
        # It joins first: the others then wait for it in the all-reduce.
        peer = os.path.join(support.HERE, "peer.py")
        dying = shlex.join([sys.executable, peer, "dies", "600000"])
        started = time.monotonic()
        result = mixed("honest=" + HONEST, "dying=" + dying)
        self.fails(result, "rank 1, dying, was ended by SIGKILL",
                   "rank 0, honest, ended with status 1", "SYMM_PEER", "rank 1")
        self.assertLess(time.monotonic() - started, 30)

    def test_ends_what_has_not_ended_in_time_with_all_that_it_started(self):
        with tempfile.TemporaryDirectory() as directory:
            pid = os.path.join(directory, "pid")
            hanging = shlex.join(["sh", "-c", "sleep 1000 & echo $! > %s; wait" % pid, "sh"])
            started = time.monotonic()
            result = mixed("--seconds", "2", "honest=" + HONEST, "hanging=" + hanging)
            self.fails(result, "rank 1, hanging, had not ended after 2 s",
                       "rank 0, honest, had not ended after 2 s")
            self.assertLess(time.monotonic() - started, 20)
            with open(pid) as file:
                self.assertFalse(alive(int(file.read())), "it left a process behind")

    def test_leaves_no_rank_behind_when_it_is_terminated(self):
        with Processes() as processes:
            pid = os.path.join(processes.directory, "pid")
            hanging = shlex.join(["sh", "-c", "echo $$ > %s; exec sleep 1000" % pid, "sh"])
            process = processes.start([*MIXED, "hanging=" + hanging])
            deadline = time.monotonic() + 30
            while not (os.path.exists(pid) and os.path.getsize(pid)):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(processes.finish(process, deadline).status, 128 + signal.SIGTERM)
            with open(pid) as file:
                self.assertFalse(alive(int(file.read())), "it left a process behind")

    def test_names_a_program_that_is_not_there(self):
        self.fails(mixed("one=" + HONEST, "none=/no/such/program"), "/no/such/program")


if __name__ == "__main__":
    support.main()
