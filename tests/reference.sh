#!/usr/bin/env bash
# The reference of symm.h as HTML is made without a warning, with every function, enum value and
# field in it; and one without a comment would have been a warning.
#
# Usage: reference.sh DOXYGEN DOXYFILE SYMM_H CC
set -euo pipefail

doxygen=$1 doxyfile=$2 header=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "reference.sh: $*" >&2
  exit 1
}

# names HEADER: its functions, enum values and fields.
names() {
  "$cc" -E -P -x c "$1" > "$work/text"
  {
    grep -oE '\bsymm_[a-z_0-9]+ *\(' "$work/text" | tr -d ' ('
    grep -oE '\bSYMM_[A-Za-z0-9_]+ *=' "$work/text" | tr -d ' ='
    tr '\n' ' ' < "$work/text" | grep -oE 'struct symm_[a-z_]+ *\{[^}]*\}' | tr ';{' '\n\n' |
      grep -oE '[a-z_0-9]+ *$' | tr -d ' '
  } | sort -u
}

# make HEADER: its reference, in html/, with what is wrong with it in log.
make() {
  rm -rf "$work/html"
  mkdir "$work/html"
  { cat "$doxyfile"; echo "INPUT = \"$1\""; echo "OUTPUT_DIRECTORY = \"$work/html\""; } |
    "$doxygen" - > "$work/log" 2>&1 || return 1
  # Where each name is described; doxygen before 1.9.7 says nothing of enum values without a comment.
  grep -hE 'class="(fieldname|memname)"' "$work"/html/*.html |
    sed -E 's/.*class="(fieldname|memname)">//; s/<[^>]*>|&#160;/ /g' > "$work/described"
  names "$1" > "$work/names"
  while read -r name; do
    grep -qw -- "$name" "$work/described" || echo "$name is described nowhere" >> "$work/log"
  done < "$work/names"
  [ ! -s "$work/log" ]
}

make "$header" || { cat "$work/log" >&2; fail "give the above a comment in symm.h"; }
[ "$(wc -l < "$work/names")" -gt 70 ] || fail "found only $(wc -l < "$work/names") names in symm.h"
echo "ok: $(wc -l < "$work/names") names are described"

# without NAME SED_EXPRESSION: symm.h with a comment less is refused, by that name.
without() {
  sed -E "$2" "$header" > "$work/symm.h"
  ! cmp -s "$header" "$work/symm.h" || fail "$2 changed nothing: this test is out of date"
  if make "$work/symm.h"; then fail "$1 without a comment was not noticed"; fi
  grep -q "$1" "$work/log" || { cat "$work/log" >&2; fail "nothing says that it is $1"; }
  echo "ok: $1 without a comment is told"
}
without symm_comm_size '/^\/\* The number of ranks\. Local\. \*\/$/d'
without SYMM_MIN 's/^( *SYMM_MIN = 3,).*/\1/'
without fd_offset 's/^( *size_t fd_offset;).*/\1/'
without symm_device '/^\/\* For `device`/d'
