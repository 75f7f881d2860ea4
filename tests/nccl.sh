#!/usr/bin/env bash
# The newest NCCL that there is, as symm loads it; no GPU is needed for that. Ends with
# 'N passed, N failed'.
#
# Usage: nccl.sh BUILD_DIR
# SYMM_TEST_NCCL: the libnccl.so.2 to take instead.
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
build=$(cd "$1" && pwd)
venv=$root/build/nccl

if [ -z "${SYMM_TEST_NCCL:-}" ]; then
  "$root/scripts/install_dependencies.sh" data
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --upgrade nvidia-nccl-cu13
  SYMM_TEST_NCCL=$(find "$venv" -name libnccl.so.2)
fi
export SYMM_TEST_NCCL

passed=0 failed=0
if timeout 120 "$build/tests/unit_nccl_library_test" --gtest_filter='NcclLibrary.TheRealOne*'; then
  passed=1
else
  failed=1
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
