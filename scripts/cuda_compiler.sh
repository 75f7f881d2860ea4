#!/usr/bin/env bash
# Brings a CUDA compiler into build/cuda, where CMake looks for one, unless this machine has a CUDA
# toolkit or it is there already. Needs python3 with venv, and PyPI or a mirror of it.
set -euo pipefail
exec < /dev/null
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/scripts/cuda_requirements.txt
target=$root/build/cuda

if [ -n "${CUDACXX:-}" ] || command -v nvcc > /dev/null 2>&1 || [ -x /usr/local/cuda/bin/nvcc ]; then
  exit 0
fi
case $(uname -m) in
  x86_64 | aarch64) ;;
  *)
    echo "cuda_compiler.sh: NVIDIA has no CUDA compiler for $(uname -m)" >&2
    exit 1
    ;;
esac
# The copy of the requirements is written last: it says that all of them are there.
if cmp -s "$requirements" "$target/requirements.txt"; then exit 0; fi
rm -rf "$target"
mkdir -p "$target"
echo "Installing the CUDA compiler into build/cuda"
python3 -m venv "$target/venv"
"$target/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
  --target "$target/packages" -r "$requirements"
rm -rf "$target/venv"
cp "$requirements" "$target/requirements.txt"
