#!/usr/bin/env bash
# Compares the ABI of symm.h and symm.map with its baseline, capi/symm.abi, by abidiff. Any
# difference fails, with abidiff's words and what to do about it.
#
# Usage: baseline.sh SYMM_H SYMM_MAP BASELINE CC
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
header=$1 map=$2 baseline=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v abidiff > /dev/null ||
  { echo "baseline.sh: abidiff is not here: scripts/install_dependencies.sh test" >&2; exit 1; }
"$here/header_library.sh" "$header" "$map" "$cc" "$work/libsymm.so"
status=0
# Every kind of change, not only those that abidiff takes for harmful. The baseline serves every
# architecture: symm is for 64 bits alone, where the types of symm.h are the same.
abidiff --no-architecture --harmless --no-default-suppression "$baseline" "$work/libsymm.so" \
  > "$work/report" 2>&1 || status=$?
if [ "$status" = 0 ]; then
  echo "the ABI is that of $(basename "$baseline")"
  exit 0
fi
cat "$work/report" >&2
cat >&2 <<'EOF'

baseline.sh: symm.h or symm.map no longer state the ABI of capi/symm.abi; above is what changed.
- If something was changed, moved or removed: undo that. Programs compiled against an older symm.h
  would misbehave. A function that must differ gets a new name, the old one stays; an enum's next
  value goes after its last; a field goes at the end of its options struct, by whole 8 bytes.
- If everything above was added: put new functions into the node of this minor version in
  capi/symm.map, pin new values and offsets in tests/header.c, run scripts/accept_abi.sh (it
  refuses anything but additions) and commit capi/symm.abi with the change.
EOF
exit 1
