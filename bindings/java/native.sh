#!/usr/bin/env bash
# Builds the native half of the jar: OUTPUT/native/java (generated sources) and
# OUTPUT/native/resources (libsymm_jni.so). Maven runs it; fast when up to date.
#
# Usage: native.sh OUTPUT [BUILD_DIR]
#   BUILD_DIR  a build of libsymm with libsymm.a in it; without one libsymm is built too (minutes)
# JAVA_HOME: the JDK with jni.h; without it the one whose javac comes first in PATH.
set -euo pipefail
exec < /dev/null
if [ $# != 1 ] && [ $# != 2 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1/native"
output=$(cd "$1/native" && pwd)
library=
if [ -n "${2:-}" ]; then
  # As seen from here, or from the root of the checkout.
  for directory in "$2" "$here/../../$2"; do
    if [ -e "$directory/libsymm.a" ]; then
      library=$(cd "$directory" && pwd)
      break
    fi
  done
  [ -n "$library" ] || { echo "native.sh: $2 has no libsymm.a" >&2; exit 1; }
fi

if [ -z "${JAVA_HOME:-}" ]; then
  JAVA_HOME=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
  export JAVA_HOME
fi
swig=$("$here/../swig/swig.sh" "$here/../../build/bindings/swig")
generator=()
command -v ninja > /dev/null 2>&1 && generator=(-G Ninja)
log=$output/configure.log
cmake -S "$here" -B "$output/build" "${generator[@]}" -DSYMM_BUILD_DIR="$library" \
  -DSYMM_SWIG="$swig" -DSYMM_JAVA_OUTPUT="$output" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$output/build" --target symm_jni --parallel "$(nproc)"
