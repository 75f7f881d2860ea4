#!/usr/bin/env bash
# Installs a build of symm under build/dlopen and makes ready every program of this folder whose
# language is to be had here, installing that where it can. Writes build/dlopen/clients.txt: a line
# for each program, its name and the words of its command, apart by tabs.
#
# Usage: examples/dlopen/build.sh BUILD_DIR
set -euo pipefail
exec < /dev/null

if [ $# != 1 ] || [ ! -e "$1/cmake_install.cmake" ]; then
  echo "usage: build.sh BUILD_DIR, a build directory of symm" >&2
  exit 2
fi
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/dlopen
mkdir -p "$out"

"$root/scripts/install_dependencies.sh" build dlopen
# Nothing of an earlier run may stand in for what this one does not make.
rm -rf "$out/prefix" "$out/go_test" "$out"/*.txt
cmake --install "$build" --prefix "$out/prefix" > "$out/install.log"
# Debian keeps libraries in a folder of the architecture's name.
library=$(find "$out/prefix" -name libsymm.so.0)
header=$(find "$out/prefix" -name symm.h)
ln -sfn "$library" "$out/libsymm.so.0"
echo "$header" > "$out/header.txt"

# client NAME WORD...
client() {
  local IFS=$'\t'
  echo "$*" >> "$out/clients.txt"
}

# runtime GROUP NAME: whether the language is here, after an attempt to install it.
runtime() {
  if "$root/scripts/install_dependencies.sh" "$1" > "$out/$1.log" 2>&1; then return 0; fi
  echo "SKIPPED: $2 is not to be had here:" >&2
  sed 's/^/  /' "$out/$1.log" >&2
  echo "$2" >> "$out/skipped.txt"
  return 1
}

warnings=(-std=c99 -Wall -Wextra -Wpedantic -Werror)
cc "${warnings[@]}" -O2 -I"$(dirname "$header")" "$here/all_reduce.c" -ldl -o "$out/all_reduce"
client c-dlopen "$out/all_reduce"

client ctypes python3 "$here/all_reduce.py"

cc -E -P "$header" > "$out/symm.ffi"
if runtime luajit LuaJIT; then client luajit luajit "$here/all_reduce.lua"; fi

if runtime ruby Ruby; then client ruby ruby "$here/all_reduce.rb"; fi

if runtime mono "C# (Mono)"; then
  mcs -warnaserror -out:"$out/AllReduce.exe" "$here/AllReduce.cs"
  client csharp mono "$out/AllReduce.exe"
fi

if runtime node Node.js; then
  # A copy, so that node_modules does not come to lie among the sources.
  mkdir -p "$out/node"
  cp "$here"/node/*.js "$here"/node/*.json "$out/node"
  (cd "$out/node" && npm ci --ignore-scripts --no-audit --no-fund > "$out/npm.log" 2>&1) ||
    { cat "$out/npm.log" >&2; exit 1; }
  client node node "$out/node/all_reduce.js"
  client node-async node "$out/node/all_reduce_async.js"
fi

if runtime go Go; then
  # The Go that is here, not one that it would fetch for this; and no C compiler.
  (cd "$here/go" && export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-mod=readonly &&
    go build -o "$out/go_all_reduce" . && go vet . && go test -c -o "$out/go_test" .)
  client go "$out/go_all_reduce"
fi
