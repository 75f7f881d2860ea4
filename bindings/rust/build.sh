#!/usr/bin/env bash
# Builds the example program as build/bindings/rust/all_reduce, linked with BUILD_DIR's libsymm.so,
# which it finds where it was.
#
# Usage: build.sh BUILD_DIR
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# = 1 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
build=$(cd "$1" && pwd)
source "$here/toolchain.sh"

need_cargo
products=$root/build/bindings/rust
mkdir -p "$products"
cd "$here"
# Of cargo's messages, the one that says where the program is.
program=$(SYMM_LIB_DIR=$build CARGO_TARGET_DIR=$products/target \
  cargo rustc --locked --quiet --release -p libsymm --example all_reduce \
  --message-format json-render-diagnostics -- -C "link-arg=-Wl,-rpath,$build" |
  sed -nE 's/.*"name":"all_reduce".*"executable":"([^"]+)".*/\1/p')
[ -x "$program" ] || { echo "build.sh: cargo built no program" >&2; exit 1; }
# A program that is running cannot be written over.
cmp -s "$program" "$products/all_reduce" || install "$program" "$products/all_reduce"
