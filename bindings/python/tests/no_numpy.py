"""Run by test.sh in an environment that has symm and nothing else: what works without NumPy."""

import array
import importlib.util
import sys
import threading

import symm

assert importlib.util.find_spec("numpy") is None, "this environment has NumPy"
address = symm.create_address("127.0.0.1")
results = [None, None]


def run(rank: int) -> None:
    with symm.Comm(address, rank, 2, timeout=60) as comm:
        x = array.array("f", [1.0, 2.0 + rank])
        total = comm.all_reduce(x)
        with comm.window((2, 3), "float32") as window:
            view = window.local.memoryview()
            for i in range(2):
                for j in range(3):
                    view[i, j] = i + j + rank
            comm.barrier()
            assert window[1 - rank].memoryview()[1, 2] == 4 - rank
            comm.barrier()
            out = array.array("f", bytes(24))
            window.all_reduce(out)
            assert window.all_reduce().memoryview().tolist() == [[1, 3, 5], [3, 5, 7]]
        results[rank] = (total.tolist(), out.tolist())


threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == [([2.0, 5.0], [1, 3, 5, 3, 5, 7])] * 2, results
assert "numpy" not in sys.modules
print("ok:", sys.version.split()[0], symm.__version__)
