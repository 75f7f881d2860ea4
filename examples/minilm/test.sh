#!/usr/bin/env bash
# Tests the example. Ends with one line, 'N passed, N failed'; fails if anything did.
#
# Usage: test.sh BUILD_DIR   of CMake, with libsymm.so.0 in it
# SYMM_TEST_TORCH=1 installs PyTorch for its test (5 GB); the path of a Python that has it lends it
# that one.
set -euo pipefail
exec < /dev/null

[ $# = 1 ] && [ -d "$1" ] || {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
products=$root/build/examples/minilm
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

echo "== MiniLM: installing"
SYMM_BUILD_DIR=$build "$here/minilm.sh" --help > /dev/null
if [ -n "${SYMM_TEST_TORCH:-}" ]; then
  "$root/scripts/lend_torch.sh" "$SYMM_TEST_TORCH" "$products/venv/bin/python"
fi

echo "== MiniLM: pytest"
report=$products/pytest.xml
rm -f "$report"
status=0
(cd "$here" && timeout 900 "$products/venv/bin/python" -m pytest -q -rs -p no:cacheprovider --timeout 300 \
  --junitxml="$report" minilm_test.py) || status=$?
# reported NAME: pytest's own count.
reported() { sed -n "s/.*<testsuite [^>]*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p;T;q" "$report" 2> /dev/null; }
total=$(reported tests)
failed=$(($(reported failures) + $(reported errors) + 0))
skipped=$(reported skipped)
passed=$((${total:-0} - failed - ${skipped:-0}))
if [ "$passed" -lt 0 ]; then passed=0; fi
if [ -z "$total" ] || [ "$total" = 0 ] || { [ "$status" != 0 ] && [ "$failed" = 0 ]; }; then
  echo "FAILED: pytest ended with status $status"
  failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
