"""Ranks as processes of this machine, which do what this one tells them."""

import contextlib
import multiprocessing
import multiprocessing.connection
import signal
import time

import symm

from arrays import LIBRARIES
from model import Model

# Seconds: for ranks to meet, and for each all-reduce. Loading the weights comes before the first.
DEADLINE = 120
# Seconds that the others have to notice the end of a rank before they are ended.
GRACE = 10


class RanksFailed(Exception):
    """`reasons`: what each rank that ended too early said, by rank; an exception of the rank, or text."""

    def __init__(self, reasons):
        self.reasons = reasons
        super().__init__("\n".join(f"rank {rank}: {reason}" for rank, reason in sorted(reasons.items())))


class Ranks:
    """Processes 0..max(counts)-1, each with its shard of the model for every number of ranks in `counts`."""

    def __init__(self, counts, library="numpy", device="cpu", most_tokens=0):
        counts = sorted(set(counts))
        address = symm.create_address("127.0.0.1")
        context = multiprocessing.get_context("spawn")
        self.processes = []
        self._pipes = []
        for rank in range(counts[-1]):
            pipe, theirs = context.Pipe()
            process = context.Process(
                target=_rank, args=(theirs, address, rank, counts, library, device, most_tokens), daemon=True
            )
            process.start()
            # Open in that process alone, so that its end is seen here.
            theirs.close()
            self.processes.append(process)
            self._pipes.append(pipe)
        try:
            self._answers(counts[-1])
        except BaseException:
            self.close()
            raise

    def embed(self, count, ids, lengths, repeat=1):
        """On ranks 0..count-1: what each got, (count, sentences, width); and seconds, (repeat, count, 2): of the
        layers and of the all-reduces in them."""
        self.start(count, ids, lengths, repeat)
        return self.result(count)

    def start(self, count, ids, lengths, repeat=1):
        for pipe in self._pipes[:count]:
            try:
                pipe.send((count, ids, lengths, repeat))
            except BrokenPipeError:
                pass  # it has ended, which _answers will find

    def result(self, count):
        embeddings, seconds = zip(*self._answers(count))
        return embeddings, list(zip(*seconds))

    def _answers(self, count):
        """One from each of the first ranks."""
        answers = {}
        reasons = {}
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes[:count])}
        until = None
        while waiting:
            timeout = None if until is None else max(0, until - time.monotonic())
            ready = multiprocessing.connection.wait(list(waiting), timeout)
            if not ready:
                for pipe, rank in waiting.items():
                    reasons[rank] = f"still at work {GRACE} seconds after another rank ended; ended"
                    self.processes[rank].kill()
                break
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    answer = pipe.recv()
                except (EOFError, ConnectionResetError):
                    answer = _how_it_ended(self.processes[rank])
                if isinstance(answer, (Exception, str)):
                    reasons[rank] = answer
                    until = until or time.monotonic() + GRACE
                else:
                    answers[rank] = answer
        if reasons:
            raise RanksFailed(reasons)
        return [answers[rank] for rank in range(count)]

    def close(self):
        """Ranks end when their pipe does; those that are in the middle of something are ended."""
        for pipe in self._pipes:
            pipe.close()
        until = time.monotonic() + GRACE
        for process in self.processes:
            process.join(max(0, until - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for process in self.processes:
                process.kill()
        self.close()


def _how_it_ended(process):
    process.join(GRACE)
    code = process.exitcode
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _rank(pipe, address, rank, counts, library, device, most_tokens):
    """A rank's process."""
    # Ctrl-C is the launcher's to handle: it ends the ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        device = f"{device}:{rank}" if device == "cuda" else device
        arrays = LIBRARIES[library](device)
        comm = symm.Comm(address, rank, counts[-1], device, timeout=DEADLINE, wait_timeout=DEADLINE)
        models = {}
        for count in counts:
            group = comm.split(0 if rank < count else None)
            if group is not None:
                models[count] = Model(arrays, rank, count, group, most_tokens)
        pipe.send(True)
        while True:
            try:
                count, ids, lengths, repeat = pipe.recv()
            except EOFError:
                break
            pipe.send(_embed(models[count], ids, lengths, repeat))
    except Exception as error:
        # Its class and what it carries, where the launcher can have them.
        with contextlib.suppress(OSError):  # of a launcher that has ended
            pipe.send(error if isinstance(error, symm.SymmError) else f"{type(error).__name__}: {error}")
        raise SystemExit(1)


def _embed(model, ids, lengths, repeat):
    seconds = []
    for _ in range(repeat):
        model.sum.comm.barrier()
        embeddings, marks = model.embed(ids, lengths)
        # On GPUs all-reduces are enqueued: whether they went well is known only now.
        model.sum.comm.check()
        seconds.append(model.seconds(marks))
    return embeddings, seconds
