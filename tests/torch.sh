#!/usr/bin/env bash
# env:// beside PyTorch itself, its stores and its launcher. Ends with 'N passed, N failed'.
#
# Usage: torch.sh [--install] BUILD_DIR
#   --install  a PyTorch of its own, in build/torch, where there is none (5 GB, a few minutes);
#              without it such a machine skips these tests
# SYMM_TORCH_PYTHON: the Python that has it (else build/torch's, else python3).
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
install=0
if [ "${1:-}" = --install ]; then
  install=1
  shift
fi
build=$(cd "$1" && pwd)
venv=$root/build/torch

has_torch() { "$1" -c 'import torch.distributed as d; assert d.is_available()' 2> /dev/null; }

find_python() {
  local candidate
  for candidate in ${SYMM_TORCH_PYTHON:+"$SYMM_TORCH_PYTHON"} "$venv/bin/python" python3; do
    if has_torch "$candidate"; then
      python=$candidate
      return 0
    fi
  done
  return 1
}

export SYMM_LIBRARY=$build/libsymm.so PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
passed=0 failed=0
# run PYTHON FILE: a file of tests, which ends with its own count.
run() {
  local log status=0
  log=$(mktemp)
  "$1" "$here/torch/$2" 2>&1 | tee "$log" || status=$?
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  else
    echo "torch.sh: $2 broke off with status $status"
    failed=$((failed + 1))
  fi
  rm -f "$log"
}

run python3 double_test.py
run python3 doctor_test.py

if ! find_python && [ $install = 1 ]; then
  "$root/scripts/install_dependencies.sh" data
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/torch/requirements.txt"
  find_python || { echo "torch.sh: PyTorch was installed and cannot be imported" >&2; exit 1; }
fi
if [ -n "${python:-}" ]; then
  "$python" -c 'import torch; print("PyTorch", torch.__version__)'
  run "$python" store_test.py
  run "$python" nccl_test.py
else
  echo "torch.sh: SKIPPED beside PyTorch itself: no Python here can import torch (torch.sh --install brings one)"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
