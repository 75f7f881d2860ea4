#!/usr/bin/env bash
# Builds and runs every test, after installing what that needs. Ends with one line, 'N passed, N
# failed'; fails if anything did.
#
# Usage: tests/run.sh [--fast] [--preset NAME]... [--with-torch] [--with-quickstart]
#   --fast             release build and its tests only
#   --preset NAME      only that one of release, asan, tsan, fuzz; may repeat
#   --with-torch       installs PyTorch (5 GB) for the tests beside it, which are skipped where
#                      there is none
#   --with-quickstart  examples/quickstart.sh as well
# SYMM_FUZZ_SECONDS: how long each fuzz target runs (60).
set -euo pipefail
exec < /dev/null

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

presets=()
quickstart=0
torch=()
while [ $# -gt 0 ]; do
  case $1 in
    --fast) presets+=(release) ;;
    --with-quickstart) quickstart=1 ;;
    --with-torch) torch=(--install) ;;
    --preset)
      case ${2:-} in
        release | asan | tsan | fuzz) presets+=("$2") ;;
        *)
          echo "run.sh: --preset takes release, asan, tsan or fuzz, not '${2:-}'" >&2
          exit 2
          ;;
      esac
      shift
      ;;
    *)
      sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
      exit 2
      ;;
  esac
  shift
done
everything=0
if [ ${#presets[@]} = 0 ]; then
  everything=1
  presets=(release asan tsan fuzz)
fi

./scripts/install_dependencies.sh build cuda test fuzz

jobs=$(nproc)
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((jobs < 2 ? jobs : 2))}
passed=0 failed=0
failures=() skipped=()
results=$root/build/results
rm -rf "$results"
mkdir -p "$results"

say() { printf '\n== %s (%d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }

# count PASSED FAILED NAME
count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
  [ "$2" = 0 ] || failures+=("$3")
}

# step NAME COMMAND...: one thing that passes or fails.
step() {
  local name=$1
  shift
  say "$name"
  if "$@"; then count 1 0 "$name"; else
    count 0 1 "$name"
    return 1
  fi
}

# The number that the first line of ctest's report gives for a name.
reported() { sed -n "s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p;T;q" "$1"; }

# tests PRESET [OPTION...]: all tests of a build, counted one by one.
tests() {
  local preset=$1 report=$results/$1.xml status=0 total bad skip
  shift
  say "$preset: tests"
  "${around[@]}" ctest --preset "$preset" --output-junit "$report" "$@" || status=$?
  # ctest writes the numbers of its report over several lines.
  total=$(tr '\n' ' ' < "$report" 2> /dev/null | sed 's/<testcase.*//' > "$report.head" &&
    reported "$report.head" tests)
  bad=$(reported "$report.head" failures)
  skip=$(reported "$report.head" skipped)
  if [ -z "$total" ] || [ "$total" = 0 ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
    echo "run.sh: ctest of $preset ended with status $status and no whole report" >&2
    count 0 1 "$preset: tests"
  else
    count $((total - bad - ${skip:-0})) "$bad" "$preset: tests"
    [ "${skip:-0}" = 0 ] || skipped+=("$preset: $skip tests of ctest's, listed after its run")
  fi
}

# suite NAME COMMAND...: tests that count themselves, by a last line 'N passed, N failed'.
suite() {
  local name=$1 log=$results/suite.log status=0 line
  shift
  say "$name"
  "$@" 2>&1 | tee "$log" || status=$?
  line=$(tail -n 1 "$log")
  if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] &&
    { [ "$status" = 0 ] || [ "${BASH_REMATCH[2]}" != 0 ]; }; then
    count "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "$name"
    [ "$line" != "0 passed, 0 failed" ] || skipped+=("$name: all of it")
    while read -r line; do skipped+=("$name: $line"); done \
      < <(grep -E 'SKIPPED|NOT TESTED|LEFT OUT' "$log" || true)
  else
    echo "run.sh: $name ended with status $status and the line '$line'" >&2
    count 0 1 "$name"
  fi
}

around=()
build() {
  cmake --preset "$1" > "$results/$1.configure.log" 2>&1 ||
    { cat "$results/$1.configure.log"; return 1; }
  cmake --build --preset "$1" -- -j "$jobs"
}

if [ $everything = 1 ]; then
  if ./scripts/install_dependencies.sh format; then
    step "formatting" ./scripts/check_format.sh || true
  else
    # Other versions of clang-format want other line breaks.
    echo "run.sh: formatting is not checked: clang-format-14 is not to be had here"
  fi
fi

# Builds find it where it is put; without one they would leave the device code out.
step "CUDA compiler" ./scripts/cuda_compiler.sh || true

for preset in "${presets[@]}"; do
  step "$preset: build" build "$preset" || continue
  around=()
  # The thread sanitizer cannot map its shadow where the kernel places programs too freely.
  if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2> /dev/null; then
    around=(setarch "$(uname -m)" -R)
  fi
  tests "$preset"
  if [ "$preset" = release ]; then
    suite "the newest NCCL" ./tests/nccl.sh build/release
    suite "beside PyTorch" ./tests/torch.sh "${torch[@]}" build/release
    # The others' tests with PyTorch take the same one.
    if [ ${#torch[@]} != 0 ]; then
      export SYMM_TEST_TORCH=${SYMM_TORCH_PYTHON:-$root/build/torch/bin/python}
    fi
    # Each language by its own package manager and test runner, then all of them together, then an
    # application.
    for part in bindings/python bindings/java bindings/rust examples/dlopen examples/languages \
      examples/minilm; do
      suite "$part" "./$part/test.sh" build/release
    done
  fi
done
if [ $quickstart = 1 ]; then step "quickstart" ./examples/quickstart.sh || true; fi

say "end"
for name in "${skipped[@]}"; do echo "not tested: $name"; done
for name in "${failures[@]}"; do echo "failed: $name"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
