#!/usr/bin/env bash
# NCCL on two GPUs, once with each build of NCCL that this machine has (the system's, and the one
# that PyTorch brings): the programs gpu_nccl*_test, and then what an all-reduce between two
# simulated peer domains takes beside ncclAllReduce: 1.1 times as much at most.
#
# Usage: tests/gpu_nccl.sh BUILD_DIR [GTEST_FILTER]
#   BUILD_DIR      may have been built elsewhere; no network, CMake or ctest is needed
#   GTEST_FILTER   only these tests, and no measurement
# SYMM_TEST_NCCL names one libnccl.so.2 to use in place of those. About 4 minutes for each build.
set -euo pipefail
exec < /dev/null

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
filter=${2:-}
limit=1.1
# A program that hangs is ended: its ranks are its children and go with it.
test_seconds=${SYMM_GPU_TEST_SECONDS:-600}
perf_seconds=240
# NVLink multicast is not used here, whatever the caller's environment says.
export NCCL_NVLS_ENABLE=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# ---- The builds of NCCL --------------------------------------------------------------------------

builds=()
add() {
  local known
  [ -n "$1" ] && [ -f "$1" ] || return 0
  for known in "${builds[@]}"; do
    [ "$known" -ef "$1" ] && return 0
  done
  builds+=("$1")
}

system_nccl() {
  PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null |
    awk '$1 == "libnccl.so.2" && !found { print $NF; found = 1 }'
}

# The wheel that PyTorch depends on; of a PyTorch built otherwise, what it loads.
torch_nccl() {
  command -v python3 > /dev/null || return 0
  timeout 120 python3 - 2> /dev/null << 'PYTHON' || true
import importlib.util
import os

try:
    spec = importlib.util.find_spec("nvidia.nccl")
except ModuleNotFoundError:
    spec = None
folders = list(spec.submodule_search_locations) if spec else []
paths = [os.path.join(folder, "lib", "libnccl.so.2") for folder in folders]
paths = [path for path in paths if os.path.exists(path)]
if not paths:
    import torch  # noqa: F401

    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "/libnccl.so" in line]
if paths:
    print(paths[0])
PYTHON
}

if [ -n "${SYMM_TEST_NCCL:-}" ]; then
  builds=("$SYMM_TEST_NCCL")
else
  add "$(system_nccl || true)"
  add "$(torch_nccl)"
fi
if [ ${#builds[@]} = 0 ]; then
  echo "gpu_nccl.sh: neither the system nor PyTorch has libnccl.so.2; SYMM_TEST_NCCL names one" >&2
  exit 2
fi
programs=()
for program in "$build"/tests/gpu_nccl*_test; do
  if [ -x "$program" ]; then programs+=("$program"); fi
done
if [ ${#programs[@]} = 0 ]; then
  echo "gpu_nccl.sh: no gpu_nccl*_test in $build/tests; was it built with cuda.h (SYMM_CUDA)?" >&2
  exit 2
fi
perf=$build/examples/symm-perf

failures=()
passed=0
skipped=0

# count WORD LOG: the number in gtest's closing line "[  WORD ] 12 tests".
count() {
  awk -v word="$1" '$1 == "[" && $2 == word && $3 == "]" && $5 ~ /^test/ { n = $4 }
                    END { print n + 0 }' "$2"
}

# library_path NCCL: with it, symm and symm-perf load that very file.
library_path() {
  echo "$(dirname "$1"):$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# ---- The tests -----------------------------------------------------------------------------------

run_tests() {
  local nccl=$1 program name status log=$scratch/log
  for program in "${programs[@]}"; do
    name=$(basename "$program")
    printf '\n== %s with %s\n' "$name" "$nccl"
    status=0
    SYMM_TEST_NCCL=$nccl LD_LIBRARY_PATH=$(library_path "$nccl") \
      timeout --kill-after=10 "$test_seconds" "$program" --gtest_filter="${filter:-*}" 2>&1 |
      tee "$log" || status=$?
    if [ "$status" != 0 ]; then failures+=("$name with $nccl (exit status $status)"); fi
    passed=$((passed + $(count PASSED "$log")))
    skipped=$((skipped + $(count SKIPPED "$log")))
  done
}

# ---- What it costs -------------------------------------------------------------------------------

# Every row of symm-perf's JSON is a line; the times are compared where both engines have one.
compare() {
  awk -v limit="$limit" '
    function field(name, text) {
      if (!match($0, "\"" name "\": \"?[^,\"}]*")) return ""
      text = substr($0, RSTART, RLENGTH)
      sub(/^"[^"]*": "?/, "", text)
      return text
    }
    /^ *\{"engine": / && field("mode") != "host" {
      key = sprintf("%-6s %-9s %10d", field("mode"), field("dtype"), field("bytes"))
      if (field("engine") == "symm") {
        keys[++n] = key
        symm[key] = field("median_us") + 0
        algorithm[key] = field("algorithm")
      } else if (field("engine") == "nccl") {
        nccl[key] = field("median_us") + 0
      }
    }
    END {
      print "mode   dtype          bytes    symm us    nccl us  ratio"
      for (i = 1; i <= n; ++i) {
        key = keys[i]
        if (symm[key] <= 0 || nccl[key] <= 0) {
          printf "%s: symm or NCCL has no time\n", key
          bad = 1
          continue
        }
        ratio = symm[key] / nccl[key]
        printf "%s %10.2f %10.2f %6.3f", key, symm[key], nccl[key], ratio
        if (ratio > limit) printf "  over the limit of %s", limit
        if (algorithm[key] != "nccl") printf "  not through NCCL but %s", algorithm[key]
        printf "\n"
        if (ratio > limit || algorithm[key] != "nccl") bad = 1
      }
      if (n == 0) print "nothing was compared"
      exit bad || n == 0
    }' "$1"
}

measure() {
  local nccl=$1 status=0 json=$scratch/perf.json
  printf '\n== an all-reduce between two domains beside ncclAllReduce, %s\n' "$nccl"
  if [ ! -x "$perf" ]; then
    echo "gpu_nccl.sh: $perf is not there: build the target symm-perf" >&2
    failures+=("no symm-perf")
    return
  fi
  # Where symm would look before it asks the loader.
  env -u VIRTUAL_ENV -u CONDA_PREFIX LD_LIBRARY_PATH="$(library_path "$nccl")" \
    SYMM_PERF_NCCL="$nccl" SYMM_DOMAIN_RANKS=1 timeout --kill-after=10 "$perf_seconds" \
    "$perf" --device gpu --ranks 2 --form all_reduce --dtype float32,bfloat16 --mode graph,eager \
    --against nccl --min 1M --max 64M --timeout 60 --json="$json" || status=$?
  if [ "$status" != 0 ]; then
    failures+=("symm-perf with $nccl (exit status $status)")
    return
  fi
  compare "$json" || failures+=("symm/nccl with $nccl")
}

for nccl in "${builds[@]}"; do
  before=$passed
  run_tests "$nccl"
  if [ -n "$filter" ]; then continue; fi
  if [ "$passed" = "$before" ] && [ ${#failures[@]} = 0 ]; then
    printf '\nnot measured: every test was skipped\n'
  else
    measure "$nccl"
  fi
done

echo
for failure in "${failures[@]}"; do echo "failed: $failure"; done
echo "NCCL builds: ${#builds[@]}; $passed tests passed, $skipped skipped; ${#failures[@]} failures"
[ ${#failures[@]} = 0 ]
