#!/usr/bin/env bash
# Makes libsymm-sys/src/bindings.rs anew from capi/symm.h. Needs libclang, which
# scripts/install_dependencies.sh rust brings; builds of the crates do not.
#
# Usage: bindgen.sh [BUILD_DIR]
#   BUILD_DIR  has libsymm.so (the checkout's build/release)
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
SYMM_LIB_DIR=$(cd "${1:-$root/build/release}" && pwd)
"$root/scripts/install_dependencies.sh" rust
cd "$here"
# A crate that does not compile yet has nothing to write its new bindings with.
[ -e libsymm-sys/src/bindings.rs ] || touch libsymm-sys/src/bindings.rs
SYMM_LIB_DIR=$SYMM_LIB_DIR LD_LIBRARY_PATH=$SYMM_LIB_DIR SYMM_UPDATE_BINDINGS=1 \
  cargo test --locked --quiet -p libsymm-sys --features bindgen --test bindings \
  the_checked_in_bindings
git -C "$root" --no-pager diff --stat -- bindings/rust/libsymm-sys/src/bindings.rs
