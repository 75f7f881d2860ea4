#!/usr/bin/env bash
# From a fresh clone to a result: installs what is missing, builds symm, lets four ranks all-reduce
# their shards of a real data set, compares with one process, and times small all-reduces.
set -euo pipefail
exec < /dev/null

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build/release
data=$root/build/quickstart
venv=$root/build/venv
cd "$root"

say() { printf '\n== %s\n' "$*"; }

say "What is needed"
"$root/scripts/install_dependencies.sh" build data

say "Building symm"
tests=OFF cuda=AUTO
# Kernels for GPUs take minutes to compile: not where there is no GPU.
if [ ! -e /dev/nvidiactl ]; then cuda=OFF; fi
# A build that tests/run.sh made stays what it is.
if grep -qs '^SYMM_BUILD_TESTS:BOOL=ON' "$build/CMakeCache.txt"; then tests=ON cuda=AUTO; fi
mkdir -p "$root/build"
cmake --preset release -DSYMM_BUILD_TESTS=$tests -DSYMM_CUDA=$cuda > "$root/build/configure.log" 2>&1 ||
  { cat "$root/build/configure.log" >&2; exit 1; }
cmake --build --preset release --target symm all_reduce symm-perf symm-doctor

say "The data set: scikit-learn's digits"
if ! "$venv/bin/python" -c 'import numpy, pip' 2> /dev/null; then
  # A virtual environment, since distributions keep pip out of their own Python (PEP 668).
  rm -rf "$venv"
  python3 -m venv --system-site-packages "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy
fi
if [ ! -f "$data/digits.npy" ]; then
  mkdir -p "$data"
  "$venv/bin/python" examples/digits.py fetch "$data/digits.npy"
fi
"$venv/bin/python" examples/digits.py shard "$data/digits.npy" "$data/ranks"
echo "$data/digits.npy: 1797 images of 8 x 8 pixels, four row-shards in $data/ranks"

say "Four ranks all-reduce their shards"
for name in shard normal; do
  address="file://$data/ranks/$name.address"
  pids=()
  for rank in 0 1 2 3; do
    timeout 60 "$build/examples/all_reduce" "$address" $rank 4 \
      "$data/ranks/$name$rank.npy" "$data/ranks/$name$rank.sum.npy" &
    pids+=($!)
  done
  failed=0
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  if [ $failed != 0 ]; then
    echo "quickstart.sh: a rank failed; its message is above" >&2
    exit 1
  fi
done
"$venv/bin/python" examples/digits.py check "$data/digits.npy" "$data/ranks"

say "How fast: symm-perf --ranks 2 --quick --max 1M"
timeout 120 "$build/examples/symm-perf" --ranks 2 --quick --max 1M

say "Done"
echo "examples/all_reduce.c is the program that the ranks ran; build/release/examples/symm-doctor"
echo "says how this machine looks to symm."
