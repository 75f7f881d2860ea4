#!/usr/bin/env bash
# Prints the path of SWIG in the version that requirements.txt names, after putting it into a
# virtual environment under DIRECTORY unless it is there: distributions have older ones.
#
# Usage: swig.sh DIRECTORY
set -euo pipefail
exec < /dev/null
if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
environment=$(cd "$1" && pwd)/venv

# Two builds at once make it once.
exec 9> "$1/lock"
flock 9
if ! cmp -s "$here/requirements.txt" "$environment/requirements.txt"; then
  rm -rf "$environment"
  python3 -m venv "$environment" >&2
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$environment/requirements.txt"
fi
echo "$environment/bin/swig"
