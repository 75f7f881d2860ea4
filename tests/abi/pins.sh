#!/usr/bin/env bash
# tests/header.c pins every enum value, every field and every function of symm.h, and tests/abi's
# client calls every function of the header that it was written for.
#
# Usage: pins.sh SYMM_H CC
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
header=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missing=0

# text HEADER: it without comments, one line a statement.
text() { "$cc" -E -P -x c "$1" | tr '\n' ' ' | sed 's/[{};,]/&\n/g'; }
functions() { text "$1" | grep -oE '\bsymm_[a-z_0-9]+ *\(' | tr -d ' (' | sort -u; }

# pinned WHAT PATTERN FILE: complains where no line of the file has the pattern.
pinned() {
  grep -qE -- "$2" "$3" && return
  echo "pins.sh: $1 is not pinned: $(basename "$3") has no '$2'" >&2
  missing=1
}

text "$header" | grep -oE '\bSYMM_[A-Za-z0-9_]+ *= ' | tr -d ' =' | sort -u > "$work/values"
# Every version has other numbers.
grep -v '^SYMM_VERSION_' "$work/values" > "$work/pinned_values"
while read -r name; do
  pinned "$name" "^CHECK\($name == " "$here/../header.c"
done < "$work/pinned_values"

"$cc" -E -P -x c "$header" | tr '\n' ' ' |
  grep -oE 'typedef struct symm_[a-z_]+ *\{[^}]*\}' > "$work/structs"
while read -r struct; do
  name=$(sed -E 's/typedef struct ([a-z_]+).*/\1/' <<< "$struct")
  sed 's/.*{//; s/}//' <<< "$struct" | tr ';' '\n' | grep -oE '[a-z_0-9]+ *$' | tr -d ' ' \
    > "$work/fields"
  while read -r field; do
    pinned "$name.$field" "^CHECK\(offsetof\($name, $field\) == " "$here/../header.c"
    pinned "the type of $name.$field" "^FIELD\(.*, $name, $field\)" "$here/../header.c"
  done < "$work/fields"
  echo "$name: $(wc -l < "$work/fields") fields"
done < "$work/structs"

functions "$header" > "$work/functions"
while read -r name; do
  pinned "$name" "^[a-z].* \*?$name\(|\* $name\(" "$here/../header.c"
done < "$work/functions"

for frozen in "$here"/symm-*.h; do
  functions "$frozen" > "$work/frozen"
  while read -r name; do pinned "$name" "\b$name\(" "$here/client.c"; done < "$work/frozen"
done
echo "$(wc -l < "$work/pinned_values") values, $(wc -l < "$work/functions") functions"
for count in values structs functions frozen; do [ -s "$work/$count" ] || missing=1; done
exit "$missing"
