#!/usr/bin/env bash
# The last release beside today's tree: today's client against its library, where that is promised
# (within a minor version), its own client against today's library, and the frozen headers against
# what was released. Ends with 77 and a reason where there is nothing to compare with.
#
# Usage: last_release.sh SOURCE_DIR WORK_DIR VERSION CMAKE CC CLIENT LIBSYMM_SO
#   WORK_DIR   where the release's library is built, once
#   CLIENT     today's client, which prints 'header N, library N'
set -euo pipefail

source=$1 work=$2 version=$3 cmake=$4 cc=$5 client=$6 library=$7
unset LD_LIBRARY_PATH

skip() {
  echo "skipped: $*"
  exit 77
}
fail() {
  echo "last_release.sh: $*" >&2
  exit 1
}
released() { git -C "$source" tag --list "$1"; }

command -v git > /dev/null || skip "git is not installed"
git -C "$source" rev-parse --git-dir > /dev/null 2>&1 || skip "this is no git checkout"
tag=$(git -C "$source" describe --tags --abbrev=0 --match 'v[0-9]*' 2> /dev/null) ||
  skip "nothing was released yet: there is no tag v*"

for frozen in "$source"/tests/abi/symm-*.h; do
  minor=$(basename "$frozen" .h)
  first=v${minor#symm-}.0
  [ -n "$(released "$first")" ] || continue
  git -C "$source" show "$first:capi/symm.h" | cmp - "$frozen" ||
    fail "$(basename "$frozen") is not the header of $first: restore it"
  echo "ok: $(basename "$frozen") is what $first had"
done

tree=$work/$tag
if [ ! -f "$tree/built" ]; then
  rm -rf "$tree"
  mkdir -p "$tree/source"
  git -C "$source" archive "$tag" | tar -x -C "$tree/source"
  "$cmake" -S "$tree/source" -B "$tree/build" -DCMAKE_BUILD_TYPE=Release -DSYMM_BUILD_TESTS=OFF \
    -DSYMM_BUILD_EXAMPLES=OFF > "$tree/log" 2>&1 || { cat "$tree/log" >&2; exit 1; }
  "$cmake" --build "$tree/build" --target symm -j 2 > "$tree/log" 2>&1 ||
    { tail -n 50 "$tree/log" >&2; exit 1; }
  touch "$tree/built"
fi

# run NAME PROGRAM LIBRARY_DIRECTORY: it uses the library of that directory, and ends well.
run() {
  local loaded
  loaded=$(LD_LIBRARY_PATH=$3 ldd "$2")
  grep -qF -e "$(realpath "$3")/libsymm.so." -e "$3/libsymm.so." <<< "$loaded" ||
    fail "$1: another libsymm.so is used"
  LD_LIBRARY_PATH=$3 timeout 120 "$2" || fail "$1: the client failed"
  echo "ok: $1"
}

if [ -f "$tree/source/tests/abi/client.c" ]; then
  "$cc" -std=c99 -DSYMM_CLIENT_HEADER='<symm.h>' -I"$tree/source/capi" \
    "$tree/source/tests/abi/client.c" -o "$tree/client" "$library" -pthread
  run "the client of $tag on today's library" "$tree/client" "$(dirname "$library")"
fi
case $tag in
  v"${version%.*}".*) run "today's client on the library of $tag" "$client" "$tree/build" ;;
  *) skip "a library of $tag is not promised to run clients of ${version%.*}" ;;
esac
