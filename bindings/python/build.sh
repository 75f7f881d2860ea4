#!/usr/bin/env bash
# Builds the wheel from a built libsymm, and a virtual environment that has it and NumPy:
#   build/bindings/python/symm-*.whl   build/bindings/python/venv
# Does nothing where both are up to date.
#
# Usage: build.sh BUILD_DIR   of CMake, with libsymm.so.0 in it, or an installation's prefix
# PYTHON: the interpreter, 3.10 or later (python3).
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
python=${PYTHON:-python3}
mkdir -p "$products"
# A user's own settings must not decide what is built.
unset PYTHONPATH PYTHONHOME CFLAGS LDFLAGS LD_LIBRARY_PATH VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

libsymm=
for directory in "$library" "$library/lib" "$library/lib64"; do
  if [ -e "$directory/libsymm.so.0" ]; then libsymm=$directory/libsymm.so.0; fi
done
[ -n "$libsymm" ] || {
  echo "build.sh: there is no libsymm.so.0 in $library, nor in its lib or lib64" >&2
  exit 1
}

"$root/scripts/install_dependencies.sh" build python
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "build.sh: $("$python" --version) is too old, symm needs Python 3.10 or later; set PYTHON" >&2
  exit 1
}

# Everything that the wheel is made of.
digest=$(
  cd "$here"
  {
    "$python" --version
    find -L CMakeLists.txt README.md pyproject.toml src library/bindings library/capi/symm.h -type f \
      ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    sha256sum "$libsymm"
    sha256sum build.sh
  } | sha256sum
)
stamp=$products/stamp
if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$digest" ] && [ -x "$products/venv/bin/python" ]; then
  exit 0
fi
rm -rf "$stamp" "$products/venv" "$products"/symm-*.whl

"$python" -m venv "$products/venv"
"$products/venv/bin/python" -m pip install -q --upgrade pip
"$products/venv/bin/python" -m pip wheel -q --no-deps -w "$products" \
  -C cmake.define.SYMM_PREBUILT="$library" -C build-dir="$products/cmake" "$here"
"$products/venv/bin/python" -m pip install -q numpy "$products"/symm-*.whl
echo "$digest" > "$stamp"
