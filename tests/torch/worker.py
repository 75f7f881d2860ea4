"""A rank of a job that runs PyTorch. Usage: worker.py STEP...; what each step does is below.

Prints 'ok' once every step held; any other end is a failure.
"""
import os
import sys
import time

import symm_ctypes as symm

dist = None  # importing torch takes seconds, which ranks without it need not spend

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
kept = []


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"rank {rank}: {what} is {found}, not {wanted}")


def reduces(comm):
    expect("the sum", comm.sum([comm.rank + 1.0, 10.0]),
           [comm.size * (comm.size + 1) / 2, 10.0 * comm.size])


def torch_init():
    global torch, dist
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="env://")


def torch_reduce():
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor)
    expect("torch's sum", tensor.item(), size * (size + 1) / 2)


def symm_create(name=""):
    comm = symm.Comm(name=name)
    expect("rank and size", (comm.rank, comm.size), (rank, size))
    reduces(comm)
    kept.append(comm)


def symm_again():
    """One communicator after the other over one name: none may take the last one's entry."""
    for _ in range(20):
        comm = symm.Comm()
        reduces(comm)
        comm.free()


def symm_split():
    half = kept[-1].split(rank % 2)
    members = [r for r in range(size) if r % 2 == rank % 2]
    expect("the half's sum", half.sum([float(rank)]), [float(sum(members))])
    half.free()


def beside():
    """torch's collectives and symm's in turns."""
    for _ in range(50):
        torch_reduce()
        reduces(kept[-1])


def entries():
    """Nothing of symm is left in the store."""
    store = dist.distributed_c10d._get_default_store()

    def grown_by(work):
        before = store.num_keys()
        dist.barrier()
        work()
        dist.barrier()
        grown = store.num_keys() - before
        dist.barrier()
        return grown

    def communicators():
        for i in range(5):
            symm.Comm(name=f"counted {i}").free()

    expect("entries left", grown_by(communicators), grown_by(lambda: None))


def late():
    if rank == size - 1:
        time.sleep(1.5)


def fail_once():
    """The first run fails while the ranks meet; torchrun starts all of them again."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank == size - 1:
            os._exit(3)
        try:
            symm.Comm(timeout_ms=20000)
        except symm.Failed as failure:
            print(f"rank {rank}: {failure}", flush=True)
        time.sleep(60)


steps = {f.__name__: f for f in (torch_init, torch_reduce, symm_create, symm_again, symm_split,
                                 beside, entries, late, fail_once)}
for step in sys.argv[1:]:
    function, _, argument = step.partition("=")
    steps[function](argument) if argument else steps[function]()
for comm in kept:
    comm.free()
if dist is not None:
    dist.destroy_process_group()
print(f"rank {rank} ok", flush=True)
