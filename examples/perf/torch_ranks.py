"""PyTorch's all-reduces as symm-perf times them: one rank, started by symm-perf (launch_torch.c).

Writes the lines of row.c to standard output, rank 0's alone: symmetric memory's one-shot and two-shot
and torch.distributed's NCCL, in CUDA graphs and eager. RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
say who meets whom. A line "@note TEXT" instead says why nothing is timed.
"""

import argparse
import os
import statistics
import time


def say(text):
    if os.environ["RANK"] == "0":
        print(text, flush=True)


class Ranks:
    """This rank's GPU, its process groups, and a buffer in symmetric memory."""

    def __init__(self, torch, most_bytes):
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.dist = torch, dist
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", self.rank)
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device)
        self.cpu = dist.new_group(backend="gloo")
        self.group = dist.group.WORLD.group_name
        self.memory = symm_mem.empty(most_bytes, dtype=torch.uint8, device=self.device)
        symm_mem.rendezvous(self.memory, self.group)
        self.private = [torch.empty(most_bytes, dtype=torch.uint8, device=self.device)
                        for _ in range(2)]
        self.ops = torch.ops.symm_mem

    def agree(self, value, op):
        tensor = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(tensor, op=op, group=self.cpu)
        return tensor.item()

    def slowest(self, value):
        return self.agree(value, self.dist.ReduceOp.MAX)

    def total(self, value):
        return int(self.agree(value, self.dist.ReduceOp.SUM))


class Engine:
    """A way to reduce `input` into `output`, which is `input` where it works in place."""

    def __init__(self, ranks, name, dtype, nbytes):
        def view(memory):
            return memory[:nbytes].view(dtype)

        self.name, self.ranks = name, ranks
        group, ops = ranks.group, ranks.ops
        if name == "torch_nccl":
            self.input = self.output = view(ranks.private[0])
            self.call = lambda: ranks.dist.all_reduce(self.output)
        elif name == "torch_one_shot":
            self.input, self.output = view(ranks.memory), view(ranks.private[1])
            self.call = lambda: ops.one_shot_all_reduce_out(self.input, "sum", group, self.output)
        else:  # its out-of-place form overwrites the input too
            self.input = self.output = view(ranks.memory)
            self.call = lambda: ops.two_shot_all_reduce_(self.input, "sum", group)
        self.in_place = self.input is self.output

    def fill(self, seed, zeros):
        """Small whole numbers: their sum is exact in any order. Returns what is right."""
        torch, ranks = self.ranks.torch, self.ranks
        if zeros:
            self.input.zero_()
            return self.input.new_zeros(self.input.numel())
        most = max(1, 256 // ranks.size)
        right = torch.zeros(self.input.numel(), dtype=torch.int32, device=ranks.device)
        for rank in range(ranks.size):
            generator = torch.Generator(device=ranks.device).manual_seed(seed + rank)
            values = torch.randint(-most, most + 1, right.shape, generator=generator,
                                   dtype=torch.int32, device=ranks.device)
            right += values
            if rank == ranks.rank:
                self.input.copy_(values)
        if not self.in_place:
            self.output.fill_(float("nan"))
        return right.to(self.output.dtype)

    def wrong(self, right):
        self.ranks.torch.cuda.synchronize()
        return int((self.output != right).sum().item())


class Cell:
    """One element type and size, by one engine."""

    def __init__(self, engine, calls, batches, seed):
        self.engine, self.calls, self.batches, self.seed = engine, calls, batches, seed
        self.wrong = 0

    def check_call(self):
        right = self.engine.fill(self.seed, False)
        self.engine.ranks.torch.cuda.synchronize()
        self.engine.ranks.total(0)
        self.engine.call()
        self.wrong += self.engine.wrong(right)

    def rounds(self, batch):
        times = []
        for index in range(-2, self.batches):
            self.seed += 1000
            right = self.engine.fill(self.seed, self.engine.in_place)
            self.engine.ranks.torch.cuda.synchronize()
            self.engine.ranks.total(0)
            taken = batch()
            self.wrong += self.engine.wrong(right)
            taken = [self.engine.ranks.slowest(us) for us in taken]
            if index >= 0:
                times.append(taken)
        return [list(column) for column in zip(*times)]

    def graph(self):
        cuda = self.engine.ranks.torch.cuda
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(self.calls):
                self.engine.call()
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)

        def batch():
            graph.replay()  # not timed: ranks start together
            begin.record()
            graph.replay()
            end.record()
            cuda.synchronize()
            return [begin.elapsed_time(end) * 1000 / self.calls]

        return self.rounds(batch)

    def eager(self):
        cuda = self.engine.ranks.torch.cuda

        def batch():
            self.engine.call()
            cuda.synchronize()
            self.engine.ranks.total(0)
            begin = time.perf_counter()
            for _ in range(self.calls):
                self.engine.call()
            issued = time.perf_counter()
            cuda.synchronize()
            end = time.perf_counter()
            return [(end - begin) * 1e6 / self.calls, (issued - begin) * 1e6 / self.calls]

        return self.rounds(batch)


def write_row(number, cell, dtype, op, nbytes, mode, times, wrong):
    times = sorted(times)
    engine = cell.engine
    p99 = times[(len(times) * 99 + 99) // 100 - 1]
    say(f"@row {number} {engine.name} all_reduce {mode} {dtype} {op} - {engine.ranks.size} {nbytes} "
        f"{int(engine.in_place)} 0 0 {statistics.median(times):.9g} {times[0]:.9g} {p99:.9g} 0 0 "
        f"{cell.calls} {len(times)} 0 0 {wrong}")


def run_cell(ranks, arguments, text, left_out):
    number, dtype, op, nbytes = text.split(":")
    nbytes = int(nbytes)
    for name in ("torch_one_shot", "torch_two_shot", "torch_nccl"):
        if name == "torch_one_shot" and arguments.in_place:
            continue
        engine = Engine(ranks, name, getattr(ranks.torch, dtype), nbytes)
        cell = Cell(engine, 100 if nbytes < 8 << 20 else 20, arguments.batches,
                    arguments.seed + 16 * int(number))
        try:
            cell.check_call()
            refused = 0
        except RuntimeError as error:  # a size that it does not take
            refused = 1
            left_out.setdefault(name, f"{nbytes} bytes of {dtype}: {str(error).splitlines()[0]}")
        if ranks.total(refused):
            continue
        results = []
        if "graph" in arguments.modes:
            results.append(("graph", cell.graph()[0]))
        if "eager" in arguments.modes:
            results += zip(("eager", "host"), cell.eager())
        wrong = ranks.total(cell.wrong)
        for mode, times in results:
            write_row(number, cell, dtype, op, nbytes, mode, times, wrong)
            wrong = 0  # counted once


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", required=True)  # number:dtype:op:bytes,...
    parser.add_argument("--modes", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--in-place", action="store_true")
    arguments = parser.parse_args()
    try:
        import torch
        import torch.distributed._symmetric_memory  # noqa: F401

        torch.ops.symm_mem.one_shot_all_reduce_out  # noqa: B018
    except (ImportError, AttributeError, OSError) as error:
        say(f"@note python3 has no torch with symmetric memory: {str(error).splitlines()[0]}")
        return
    cells = arguments.cells.split(",")
    ranks = Ranks(torch, max(16, *(int(cell.split(":")[3]) for cell in cells)))
    say(f"@torch {torch.__version__}")
    left_out = {}
    with torch.cuda.stream(torch.cuda.Stream()):
        for cell in cells:
            run_cell(ranks, arguments, cell, left_out)
    for name, why in left_out.items():
        say(f"@note {name} is left out where it refuses, first {why}")
    ranks.dist.barrier(group=ranks.cpu)
    # What is destroyed at exit may wait for ranks that have gone already.
    os._exit(0)


main()
