#!/usr/bin/env bash
# A shared library for abidw with the ABI that symm.h and symm.map state and nothing behind it:
# every function of the header, in C and with debugging information, so that the internals of
# libsymm.so and the compiler's C++ leave no trace in the description. That libsymm.so has exactly
# these functions is what symbols.sh checks, that it defines them so is the compiler's business.
# Enums that no function takes (symm_device is an int32_t there) get a function each of a name of
# its own; symm_header_version does not, as it changes with every version.
#
# Usage: header_library.sh SYMM_H SYMM_MAP CC OUTPUT_SO
set -euo pipefail

header=$1 map=$2 cc=$3 output=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$header" "$work/symm.h"
# One line a statement. The compiler drops comments; symm.h has no macro but its guard.
"$cc" -E -P "$work/symm.h" | tr '\n' ' ' | sed 's/[{;]/&\n/g' > "$work/statements"
grep -oE '\benum symm_[a-z_]+ *\{' "$work/statements" | sed 's/^enum //; s/ *{$//' |
  grep -v '^symm_header_version$' > "$work/enums"
{
  echo '#include "symm.h"'
  # A prototype, less its semicolon.
  grep -E '\bsymm_[a-z_0-9]+ *\(.*\) *;' "$work/statements" |
    sed 's/; *$/ { __builtin_trap(); }/'
  sed 's/.*/void enum_&(enum & value) { (void)value; }/' "$work/enums"
} > "$work/functions.c"
{
  cat "$map"
  echo 'ENUMS {'
  echo '  global:'
  sed 's/.*/    enum_&;/' "$work/enums"
  echo '};'
} > "$work/symm.map"
# The names in debugging information are those of no machine.
(cd "$work" && "$cc" -std=c99 -g -O0 -fPIC -w -c functions.c -o functions.o)
"$cc" -shared -nostdlib -Wl,--version-script="$work/symm.map" -Wl,-soname,libsymm.so \
  "$work/functions.o" -o "$output"
