"""On NVIDIA GPUs, with PyTorch. Needs no more than symm, PyTorch and NumPy:

    python -m unittest -v gpu_test        (pytest takes it too)

Each rank is a process; with one GPU the ranks share it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

import symm
from ranks import DEADLINE, Processes

try:
    import torch

    GPUS = torch.cuda.device_count()
except ImportError:
    GPUS = 0

SETUP = """
import numpy as np
import torch
gpus = torch.cuda.device_count()
ordinal = rank % gpus
torch.cuda.set_device(ordinal)
device = torch.device("cuda", ordinal)
comm = symm.Comm(address, rank, size, device, timeout=60, wait_timeout=60, share_gpu=gpus < size, name=name)

def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"not refused: {text}")

def full(value, dtype=torch.float32, count=1000):
    return torch.full((count,), value, device=device).to(dtype)

def is_all(x, value):
    torch.cuda.synchronize()
    return bool((x.float() == value).all())
"""


@unittest.skipUnless(GPUS, "there is no GPU, or no PyTorch for one")
class OnGpus(unittest.TestCase):
    def ranks(self, body: str, size: int = 2) -> None:
        lines = body.splitlines()
        indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        code = (
            f"name = {self.id()!r}\n{SETUP}\n"
            + "\n".join(line[indent:] for line in lines)
            + "\nprint('ok')\n"
        )
        with Processes(size, code) as processes:
            self.assertEqual(processes.finish(), ["ok\n"] * size)

    def test_every_dtype_and_op(self) -> None:
        self.ranks(
            """
            expected = {"sum": 3, "prod": 2, "max": 2, "min": 1, "avg": {True: 1.5, False: 1}}
            for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
                         "bfloat16", "float8_e4m3fn", "float8_e5m2"):
                dtype = getattr(torch, name)
                x = full(rank + 1, dtype)
                for op, value in expected.items():
                    if op == "avg":
                        value = value["float" in name]
                    new = comm.all_reduce(x, op=op)
                    assert new.dtype == dtype and new.device == device and is_all(new, value), (name, op)
                    out = full(0, dtype)
                    assert comm.all_reduce(x, out, op) is out and is_all(out, value), (name, op)
                    with comm.window(1000, dtype) as window:
                        window.torch().copy_(x)
                        assert window.all_reduce(out, op) is out and is_all(out, value), (name, op)
                    again = x.clone()
                    assert comm.all_reduce(again, again, op) is again and is_all(again, value), (name, op)
            """
        )

    def test_the_current_stream_is_the_default(self) -> None:
        self.ranks(
            """
            side = torch.cuda.Stream()
            for explicit in (None, side, side.cuda_stream):
                x, out = full(0), full(0)
                torch.cuda.synchronize()
                with torch.cuda.stream(side):
                    torch.cuda._sleep(50_000_000)  # what runs too early sees zeros
                    x.fill_(rank + 1)
                    if explicit is None:
                        assert comm.all_reduce(x, out=out) is out
                if explicit is not None:
                    comm.all_reduce(x, out=out, stream=explicit)
                with torch.cuda.stream(side):
                    copy = out.clone()
                side.synchronize()
                assert is_all(copy, 3), explicit
            window = comm.window(1000)
            with torch.cuda.stream(side):
                torch.cuda._sleep(50_000_000)
                window.torch().fill_(rank + 1)
                view = window.all_reduce()
                comm.barrier()
                copy = view.torch().clone()
            side.synchronize()
            assert is_all(copy, 3)
            for stream in (-1, "s", object()):
                refused((TypeError, ValueError), "stream", lambda: comm.all_reduce(x, stream=stream))
            """
        )

    def test_graphs(self) -> None:
        self.ranks(
            """
            x, out = full(1), full(0)
            window, from_window = comm.window(1000), full(0)
            comm.all_reduce(x, out=out)
            window.all_reduce(from_window)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                x.add_(1)
                comm.all_reduce(x, out=out)
                window.torch().copy_(out)
                window.all_reduce(from_window)
            for step in range(1, 21):
                x.fill_(step + rank)
                graph.replay()
                assert is_all(out, 2 * step + 3), step
                assert is_all(from_window, 2 * (2 * step + 3)), step
            # What a graph captured lives as long as that.
            window.close()
            del window
            x.fill_(rank)
            graph.replay()
            assert is_all(from_window, 6)
            comm.check()
            """
        )

    def test_windows(self) -> None:
        self.ranks(
            """
            window = comm.window((10, 100), torch.bfloat16)
            assert window.device == f"cuda:{ordinal}" and window.dtype == "bfloat16"
            mine, theirs = window.torch(), window.torch(1 - rank)
            assert mine.dtype == torch.bfloat16 and mine.shape == (10, 100) and mine.device == device
            assert is_all(mine, 0)
            mine.fill_(rank + 1)
            comm.barrier()
            assert is_all(theirs, 2 - rank)
            comm.barrier()
            torch.cuda.synchronize()
            assert not hasattr(window[0], "__array_interface__")
            assert not hasattr(window[0], "__cuda_array_interface__")  # which has no bfloat16
            plain = comm.window(8, "float32")
            assert plain.local.__cuda_array_interface__["shape"] == (8,)
            assert torch.as_tensor(plain.local, device=device).data_ptr() == plain.local.address
            refused(ValueError, "GPU", plain.local.memoryview)
            plain.close()
            window.close()
            del window, theirs
            mine.fill_(5)
            assert is_all(mine, 5)
            """
        )

    def test_register(self) -> None:
        self.ranks(
            """
            tensor = full(0, count=1 << 20)
            with comm.register(tensor) as window:
                tensor.fill_(rank + 1)
                out = window.all_reduce(full(0, count=1 << 20))
                assert is_all(out, 3)
                torch.cuda.synchronize()
                comm.barrier()
                torch.cuda.synchronize()
            """
        )

    def test_refusals(self) -> None:
        self.ranks(
            """
            x = full(1)
            for bad in (torch.ones(1000), np.ones(1000, np.float32)):
                refused(ValueError, "in the host's memory", lambda: comm.all_reduce(bad))
                refused(ValueError, "out is in the host's memory", lambda: comm.all_reduce(x, out=bad))
            if gpus > 1:
                other = torch.ones(1000, device=f"cuda:{(ordinal + 1) % gpus}")
                refused(ValueError, f"works on CUDA device {ordinal}", lambda: comm.all_reduce(other))
            refused(ValueError, "not contiguous", lambda: comm.all_reduce(full(1)[::2]))
            refused(ValueError, "overlap", lambda: comm.all_reduce(x[:500], out=x[100:600]))
            refused(ValueError, "requires grad", lambda: comm.all_reduce(x.clone().requires_grad_()))
            assert is_all(comm.all_reduce(x), 2)
            """
        )

    def test_cupy(self) -> None:
        try:
            import cupy  # noqa: F401
        except ImportError:
            self.skipTest("CuPy is not installed")
        self.ranks(
            """
            import cupy
            with cupy.cuda.Device(ordinal):
                stream = cupy.cuda.Stream(non_blocking=True)
                with stream:
                    x = cupy.full(1000, rank + 1, cupy.float32)
                    y = comm.all_reduce(x)
                    assert type(y) is cupy.ndarray and (y == 3).all()
                with comm.window(1000) as window:
                    window.cupy()[:] = 1
                    assert (cupy.asarray(window.local) == 1).all()
            """
        )

    def test_beside_torch_distributed(self) -> None:
        """Under torchrun, a rank on every GPU: the same to rounding, in one process with NCCL."""
        program = """
            import os, symm, torch, torch.distributed as dist
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
            with symm.Comm.from_env("local", timeout=60) as comm:
                assert comm.rank == dist.get_rank() and comm.size == dist.get_world_size()
                torch.manual_seed(comm.rank)
                for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2), (torch.int32, 0)):
                    for count in (1, 1000, 1 << 20, (1 << 22) + 3):
                        x = (torch.randn(count, device="cuda") * 100).to(dtype)
                        ours = comm.all_reduce(x)
                        theirs = x.clone()
                        dist.all_reduce(theirs)
                        torch.testing.assert_close(ours.float(), theirs.float(), rtol=tolerance, atol=100 * tolerance)
            dist.destroy_process_group()
            print("ok")
        """
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "program.py")
            lines = program.splitlines()
            with open(path, "w") as file:
                file.write("\n".join(line[12:] for line in lines))
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "torch.distributed.run",
                    "--standalone",
                    f"--nproc-per-node={GPUS}",
                    path,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=4 * DEADLINE,
            )
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count("ok\n"), GPUS, done.stdout)

    def test_the_device_by_its_names(self) -> None:
        for device in (0, "cuda:0", torch.device("cuda", 0), "current", "cuda"):
            with symm.Comm(symm.create_address("127.0.0.1"), 0, 1, device, timeout=30) as comm:
                self.assertEqual(comm.device, "cuda:0")


if __name__ == "__main__":
    unittest.main()
