#!/usr/bin/env bash
# Builds and tests the Python binding. Ends with one line, 'N passed, N failed'; fails if anything did.
#
# Usage: test.sh BUILD_DIR   see build.sh
# SYMM_TEST_TORCH=1 installs PyTorch for its tests (5 GB); otherwise they run where it is there already.
set -euo pipefail
exec < /dev/null

[ $# = 1 ] && [ -d "$1" ] || {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}
library=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
products=$root/build/bindings/python
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

passed=0 failed=0

# count PASSED FAILED
count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# step NAME COMMAND...: one thing that passes or fails.
step() {
  local name=$1
  shift
  echo "== Python: $name"
  if "$@"; then count 1 0; else
    echo "FAILED: $name"
    count 0 1
  fi
}

echo "== Python: building"
"$here/build.sh" "$library"

tools=$products/tools
if [ ! -e "$tools/ready" ] || [ "$here/tests/requirements.txt" -nt "$tools/ready" ] ||
  [ "$products/stamp" -nt "$tools/ready" ]; then
  rm -rf "$tools/ready"
  [ -x "$tools/bin/python" ] || "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/python" -m pip install -q --upgrade pip
  "$tools/bin/python" -m pip install -q -r "$here/tests/requirements.txt"
  "$tools/bin/python" -m pip install -q --force-reinstall --no-deps "$products"/symm-*.whl
  touch "$tools/ready"
fi
if [ "${SYMM_TEST_TORCH:-}" = 1 ]; then
  "$tools/bin/python" -m pip install -q torch
fi

report=$products/pytest.xml
rm -f "$report"
echo "== Python: pytest"
status=0
(cd "$here/tests" && timeout 1800 "$tools/bin/python" -m pytest -q -rs -p no:cacheprovider -o junit_family=xunit2 \
  --junitxml="$report" --timeout 300 .) || status=$?
# reported NAME: pytest's own count.
reported() { sed -n "s/.*<testsuite [^>]*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$report" 2> /dev/null | head -n 1; }
total=$(reported tests)
bad=$(($(reported failures) + $(reported errors) + 0))
skipped=$(reported skipped)
if [ -z "$total" ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
  echo "FAILED: pytest ended with status $status"
  count 0 1
else
  count $((total - bad - skipped)) "$bad"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
