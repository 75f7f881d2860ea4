#!/usr/bin/env bash
# All tests that need GPUs, from an existing build directory, which may have been built elsewhere:
#
#   tests/gpu.sh [BUILD] [GTEST_FILTER]
#
# Tests that need more GPUs than there are say so and are skipped, and so are those that cannot work
# with CUDA_LAUNCH_BLOCKING=1 if that is set. Needs no network, CMake or ctest.
# SYMM_STRESS_OPERATIONS and SYMM_STRESS_SEED are gpu_stress_test's: 100000, and another each time.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd) || exit 2
filter=${2:-*}
export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# A test that hangs is ended: its ranks are its children and go with it.
limit=${SYMM_GPU_TEST_SECONDS:-900}

failed=()
ran=0
for test in "$build"/tests/cuda_kernel_test "$build"/tests/gpu_*_test; do
  [ -x "$test" ] || continue
  ran=$((ran + 1))
  echo "== $(basename "$test")"
  timeout --kill-after=10 "$limit" "$test" --gtest_brief=1 --gtest_filter="$filter" ||
    failed+=("$(basename "$test")")
done
if [ "$ran" = 0 ]; then
  echo "gpu.sh: there are no GPU tests in $build/tests; was it built with a CUDA compiler (SYMM_CUDA=ON)?" >&2
  exit 2
fi
if [ "${#failed[@]}" -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "all $ran programs passed"
