#!/usr/bin/env bash
# Makes the ABI of capi/symm.h and capi/symm.map the baseline (capi/symm.abi) if it is the old one
# with additions. Anything else is refused: it would break programs.
#
# Usage: accept_abi.sh [DIRECTORY [CC]]   of symm.h, symm.map and symm.abi (capi) and a C compiler
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
capi=${1:-$root/capi} cc=${2:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

refuse() {
  echo "accept_abi.sh: $*; capi/symm.abi is left as it is" >&2
  exit 1
}

"$cc" -x c -std=c99 -Wall -Wextra -Wpedantic -Wpadded -Werror -fsyntax-only -I"$capi" \
  "$root/tests/header.c" || refuse "tests/header.c does not hold any more"
"$root/tests/abi/header_library.sh" "$capi/symm.h" "$capi/symm.map" "$cc" "$work/libsymm.so"
abidiff --no-architecture --no-added-syms --suppressions "$root/tests/abi/additions.abignore" \
  "$capi/symm.abi" "$work/libsymm.so" >&2 || refuse "what abidiff says above is no addition"
abidw --no-architecture --no-show-locs --no-corpus-path --no-comp-dir-path "$work/libsymm.so" \
  > "$work/symm.abi"
if cmp -s "$work/symm.abi" "$capi/symm.abi"; then
  echo "accept_abi.sh: nothing was added"
  exit 0
fi
diff "$capi/symm.abi" "$work/symm.abi" | grep '^[<>].*name=' || true
cp "$work/symm.abi" "$capi/symm.abi"
echo "accept_abi.sh: wrote symm.abi; commit it together with the change"
