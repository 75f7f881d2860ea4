#!/usr/bin/env bash
# Breaks the ABI on purpose, in copies of symm.h and symm.map: baseline.sh must fail each time and
# say what to do, and accept_abi.sh must refuse. Additions must be told too, and be accepted.
#
# Usage: breaks.sh CAPI_DIR CC
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
capi=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "breaks.sh: $*" >&2
  cat "$work/report" >&2
  exit 1
}

baseline() {
  "$here/baseline.sh" "$work/symm.h" "$work/symm.map" "$work/symm.abi" "$cc" > "$work/report" 2>&1
}
accept() { "$here/../../scripts/accept_abi.sh" "$work" "$cc" > "$work/report" 2>&1; }

fresh() { cp "$capi/symm.h" "$capi/symm.map" "$capi/symm.abi" "$work"; }

# change FILE SED_EXPRESSION: fails where there was nothing to change.
change() {
  cp "$work/$1" "$work/before"
  sed -i -E "$2" "$work/$1"
  ! cmp -s "$work/before" "$work/$1" || fail "$2 changed nothing in $1: this test is out of date"
}

# detected NAME TEXT: the change in the copies is told with TEXT.
detected() {
  if baseline; then fail "$1: not noticed"; fi
  grep -qF -- "$2" "$work/report" || fail "$1: abidiff does not speak of '$2'"
  grep -q 'undo that.' "$work/report" || fail "$1: nothing says what to do"
}

broken() {
  local other="abidiff"
  detected "$1" "$2"
  if accept; then fail "$1: accepted as an addition"; fi
  cmp -s "$capi/symm.abi" "$work/symm.abi" || fail "$1: the baseline was rewritten"
  "$cc" -x c -std=c99 -Wall -Wpedantic -Wpadded -Werror -fsyntax-only -I"$work" "$here/../header.c" > /dev/null 2>&1 ||
    other+=", header.c"
  echo "ok: $1 (found by $other)"
  fresh
}

added() {
  detected "$1" "$2"
  accept || fail "$1: not accepted"
  baseline || fail "$1: accepted, and still different"
  echo "ok: $1 is told, and accepted"
  fresh
}

fresh
baseline || fail "the copies differ before anything is changed"

change symm.h 's/SYMM_MAX = 2/SYMM_MAX = 3/; s/SYMM_MIN = 3/SYMM_MIN = 2/'
broken "an enum reordered" SYMM_MAX
change symm.h 's/SYMM_LOCAL_GPU = -2/SYMM_LOCAL_GPU = -4/'
broken "a value changed of an enum that no function takes" SYMM_LOCAL_GPU
change symm.h '/^ *SYMM_FLOAT8_E5M2 = /d'
broken "an enum value dropped" SYMM_FLOAT8_E5M2
change symm.h '/^  uint32_t (flags; .*symm_comm_flags|reserved);?/d'
broken "a struct shrunk" symm_comm_options
change symm.h 's/^(  size_t error_size; )(.*)/\1\2\n  size_t in_between;/'
broken "a field put between others" in_between
change symm.h 's/^(  int32_t fd;.*)/  uint32_t\1/; s/uint32_t  int32_t fd/  uint32_t fd/'
broken "a field's type changed" "'int32_t fd'"
change symm.map '/symm_comm_nccl;/d'
broken "a symbol dropped" symm_comm_nccl
change symm.h '/^symm_status symm_comm_nccl\(/d'
broken "a function dropped" symm_comm_nccl
change symm.map 's/SYMM_0\.1 /SYMM_0.2 /'
broken "the version of the symbols changed" SYMM_0.1
change symm.h 's/(symm_all_reduce\(.*)size_t count/\1int32_t count/'
broken "a parameter's type changed" symm_all_reduce
change symm.h 's/^void symm_comm_free/symm_status symm_comm_free/'
broken "a return type changed" symm_comm_free
change symm.h 's/symm_comm_split\(symm_comm \*comm, int32_t color, /symm_comm_split(symm_comm *comm, /'
broken "a parameter dropped" symm_comm_split

change symm.h 's/^symm_status symm_comm_rank/symm_status symm_comm_added(symm_comm *comm, int32_t n);\n&/'
change symm.map 's/^ *local:/    symm_comm_added;\n&/'
added "a new function" symm_comm_added
change symm.h 's/^  SYMM_AVG = 4,/&\n  SYMM_BAND = 0x10000,/'
added "a new enum value" SYMM_BAND
change symm.h 's/^  uint32_t reserved;/&\n  uint64_t added;/'
added "a field at the end of a struct" added
