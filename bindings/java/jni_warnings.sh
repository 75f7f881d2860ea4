#!/usr/bin/env bash
# Fails if a virtual machine of the tests had something to say about a native method: the complaints
# of -Xcheck:jni go to what the machine prints, which the tests have put into files.
#
# Usage: jni_warnings.sh [--clear] DIRECTORY
#   --clear  make the directory, empty, for the machines to come
set -euo pipefail
exec < /dev/null

if [ "${1:-}" = --clear ] && [ $# = 2 ]; then
  mkdir -p "$2"
  rm -f "$2"/*.log
  exit 0
fi
if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

shopt -s nullglob
logs=("$1"/*.log)
if [ ${#logs[@]} = 0 ]; then
  echo "jni_warnings.sh: no virtual machine has written to $1" >&2
  exit 1
fi
if grep -H -A 12 -i -e 'in native method' -e 'WARNING: JNI' "${logs[@]}" >&2; then
  echo "jni_warnings.sh: -Xcheck:jni complained (above)" >&2
  exit 1
fi
echo "-Xcheck:jni had nothing to say in ${#logs[@]} virtual machines"
