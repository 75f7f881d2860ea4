#!/usr/bin/env python3
"""Runs one rank of the program all_reduce in each of several languages, all in one communicator,
and compares what they print with each other and with a sum that is computed here.

Usage: mixed.py [--seconds N] NAME=COMMAND...

Every COMMAND gets an address, its rank (its place in the list) and the number of ranks as further
arguments. Within N seconds (60) all have ended, by themselves or not.
"""
import argparse
import collections
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no __pycache__ among the sources
import reference

Ended = collections.namedtuple("Ended", "status out err late when")  # when: time.monotonic()


class Processes:
    """Processes of ours, none of which outlives the `with` block."""

    def __init__(self):
        self.started = []
        self.directory = tempfile.mkdtemp(prefix="symm-")
        self.meetings = 0

    def address(self):
        """A new place for ranks to meet at."""
        self.meetings += 1
        return "file://%s/meet%d" % (self.directory, self.meetings)

    def start(self, command, env=None):
        # Files rather than pipes: a process that writes much never waits for us to read.
        out, err = tempfile.TemporaryFile(dir=self.directory), tempfile.TemporaryFile(
            dir=self.directory)
        # A session of its own, so that what it starts ends with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            env=dict(os.environ, **(env or {})))
        process.out, process.err = out, err
        self.started.append(process)
        return process

    @staticmethod
    def kill(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    @staticmethod
    def read(file):
        file.seek(0)
        return file.read().decode(errors="replace")

    def finish(self, process, deadline):
        """How it ended, by itself until `deadline` (of time.monotonic) or killed then."""
        late = False
        try:
            process.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
        when = time.monotonic()
        self.kill(process)
        return Ended(process.returncode, self.read(process.out), self.read(process.err), late, when)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            self.kill(process)
            process.out.close()
            process.err.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def run_ranks(commands, seconds=60, env=None):
    """Runs commands[i] as rank i of len(commands); how each ended."""
    with Processes() as processes:
        address = processes.address()
        started = [
            processes.start([*command, address, str(rank), str(len(commands))], env)
            for rank, command in enumerate(commands)
        ]
        deadline = time.monotonic() + seconds
        return [processes.finish(process, deadline) for process in started]


def how_it_ended(ended, seconds):
    if ended.late:
        return "had not ended after %g s" % seconds
    if ended.status < 0:
        return "was ended by %s" % signal.Signals(-ended.status).name
    return "ended with status %d" % ended.status


def compare(names, results, seconds):
    """What is wrong, a line each; nothing if every rank is right."""
    faults = []
    right = reference.lines(len(names))
    for rank, (name, ended) in enumerate(zip(names, results)):
        who = "rank %d, %s," % (rank, name)  # the library's messages say the number
        if ended.late or ended.status != 0:
            faults.append("%s %s" % (who, how_it_ended(ended, seconds)))
        elif ended.out.splitlines() != [right[rank]]:
            faults.append("%s deviates: it printed %r, right is %r" % (who, ended.out, right[rank]))
    return faults


def main():
    # By an exception, which leaves no rank behind.
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(usage=__doc__.split("Usage: ")[1].split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("ranks", nargs="+")
    arguments = parser.parse_args()
    names, commands = [], []
    for rank in arguments.ranks:
        name, equals, command = rank.partition("=")
        if not name or not equals or not command:
            parser.error("'%s' is not NAME=COMMAND" % rank)
        names.append(name)
        commands.append(shlex.split(command))

    try:
        results = run_ranks(commands, arguments.seconds)
    except OSError as error:
        sys.exit("mixed.py: %s" % error)
    width = max(len(name) for name in names)
    for name, ended in zip(names, results):
        for text, where in (ended.out, sys.stdout), (ended.err, sys.stderr):
            for line in text.splitlines():
                print("%-*s  %s" % (width, name, line), file=where)
    sys.stdout.flush()
    faults = compare(names, results, arguments.seconds)
    for fault in faults:
        print("mixed.py: %s" % fault, file=sys.stderr)
    if faults:
        sys.exit(1)
    print("%d ranks, %s: the same bits, and the right ones" % (len(names), ", ".join(names)))


if __name__ == "__main__":
    main()
