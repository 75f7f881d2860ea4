#!/usr/bin/env bash
# Makes a virtual environment with symm's package, the model and what runs it, and runs run.py there.
#
# Usage: minilm.sh [ARGUMENT...]   run.py's; --help says which
# SYMM_BUILD_DIR: CMake's build directory with libsymm.so.0 in it; else build/release, built if need be.
# PYTHON: the interpreter, 3.10 or later (python3).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SYMM_BUILD_DIR:-$root/build/release}
wheels=$root/build/bindings/python
venv=$root/build/examples/minilm/venv
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

# What installs must not read the sentences.
{
  if [ -z "${SYMM_BUILD_DIR:-}" ] && [ ! -e "$build/libsymm.so.0" ]; then
    "$root/scripts/install_dependencies.sh" build
    cuda=AUTO
    # Kernels for GPUs take minutes to compile: not where there is no GPU.
    if [ ! -e /dev/nvidiactl ]; then cuda=OFF; fi
    # In a shell of its own: what the caller names is seen from where the caller is.
    (
      cd "$root"
      cmake --preset release -DSYMM_BUILD_TESTS=OFF -DSYMM_CUDA=$cuda
      cmake --build --preset release --target symm
    )
  fi
  "$root/bindings/python/build.sh" "$build"

  if [ ! -e "$venv/ready" ] || [ "$here/requirements.txt" -nt "$venv/ready" ] ||
    [ "$wheels/stamp" -nt "$venv/ready" ]; then
    rm -f "$venv/ready"
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install -q --upgrade pip
    "$venv/bin/python" -m pip install -q --no-deps --only-binary :all: -r "$here/requirements.txt"
    "$venv/bin/python" -m pip install -q --no-deps --force-reinstall "$wheels"/symm-*.whl
    touch "$venv/ready"
  fi
} < /dev/null >&2

exec "$venv/bin/python" "$here/run.py" "$@"
