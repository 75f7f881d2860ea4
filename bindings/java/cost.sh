#!/usr/bin/env bash
# What an all-reduce of 8 bytes costs a communicator of one rank in Java and in C, in turns; fails
# if Java's own part is more than 500 ns in the best of the turns.
#
# Usage: cost.sh BUILD_DIR   after test.sh or `mvn package`
set -euo pipefail
exec < /dev/null
if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
output=$(cd "$here/../.." && pwd)/build/bindings/java
"$here/native.sh" "$output" "$1" > /dev/null
cmake --build "$output/native/build" --target symm_cost > /dev/null

# Of each, the lowest of the turns' medians: what else runs here only adds. More turns where that is
# much.
lowest() { printf '%s\n' "$@" | sort -g | sed -n 1p; }
c=() buffers=() addresses=()
for turn in {1..10}; do
  c+=("$("$output/native/build/symm_cost")")
  read -r buffer address < <(
    java -Xbatch -cp "$output/maven/classes:$output/maven/test-classes" dev.symm.Cost)
  buffers+=("$buffer") addresses+=("$address")
  echo "8 bytes, one rank, median ns a call:" \
    "C ${c[-1]}, Java with buffers $buffer, with addresses $address"
  own=$(awk -v c="$(lowest "${c[@]}")" -v b="$(lowest "${buffers[@]}")" \
    -v a="$(lowest "${addresses[@]}")" 'BEGIN { printf "%.0f", (a > b ? a : b) - c }')
  if [ "$turn" -ge 3 ] && [ "$own" -le 500 ]; then break; fi
done
echo "Java's own part: $own ns (at most 500)"
[ "$own" -le 500 ]
