# The second half of test.sh: which library is linked, and what the packages hold.

# ---- Which library is linked ---------------------------------------------------------------------

# sys ENV... : the build script and the compiler over libsymm-sys alone, with no library but ENV's.
sys() {
  env -u SYMM_LIB_DIR PKG_CONFIG_LIBDIR="$products/pc/none" "$@" \
    cargo check --locked --quiet -p libsymm-sys 2>&1
}
# refused WORD ENV...: it must not be built, for a reason with WORD in it.
refused() {
  local word=$1 said
  shift
  if said=$(sys "$@"); then
    echo "test.sh: it was built with $*" >&2
    return 1
  fi
  grep -q -- "$word" <<< "$said" || { echo "test.sh: '$word' is not in: $said" >&2; return 1; }
}
pc() {
  mkdir -p "$products/pc/$1"
  printf 'libdir=%s\nName: symm\nDescription: symm\nVersion: %s\nLibs: -L${libdir} -lsymm\n' \
    "${2:-$build}" "$1" > "$products/pc/$1/symm.pc"
}
mkdir -p "$products/pc/none"
for version in 0.0.9 0.1.7 0.2.0; do pc "$version"; done
pc 0.1.8 "$products/pc/none"

which_library() {
  refused "SYMM_LIB_DIR" || return 1
  refused "has no libsymm.so" SYMM_LIB_DIR="$here" || return 1
  refused "has no libsymm.a" SYMM_LIB_DIR="$here" SYMM_STATIC=1 || return 1
  refused "SYMM_STATIC is 'yes'" SYMM_LIB_DIR="$build" SYMM_STATIC=yes || return 1
  refused "0.0.9" PKG_CONFIG_LIBDIR="$products/pc/0.0.9" || return 1
  refused "0.2.0" PKG_CONFIG_LIBDIR="$products/pc/0.2.0" || return 1
  refused "SYMM_NO_PKG_CONFIG" PKG_CONFIG_LIBDIR="$products/pc/0.1.7" SYMM_NO_PKG_CONFIG=1 || return 1
  sys PKG_CONFIG_LIBDIR="$products/pc/0.1.7" || return 1
  refused "has no libsymm.a" PKG_CONFIG_LIBDIR="$products/pc/0.1.8" SYMM_STATIC=1 || return 1
  # Also from what the crate pkg-config takes for the system's folders, as below /usr.
  sys PKG_CONFIG_LIBDIR="$products/pc/0.1.7" SYMM_STATIC=1 \
    PKG_CONFIG_SYSROOT_DIR="$(dirname "$build")" || return 1
  # shellcheck disable=SC2012  # the latest
  grep -q '^cargo:rustc-link-lib=static=symm$' \
    "$(ls -t "$CARGO_TARGET_DIR"/debug/build/libsymm-sys-*/output | head -n 1)" || {
    echo "test.sh: SYMM_STATIC=1 by pkg-config did not link libsymm.a" >&2
    return 1
  }
  # A folder named outright goes first.
  sys SYMM_LIB_DIR="$build" PKG_CONFIG_LIBDIR="$products/pc/0.2.0"
}
check "which library is found" which_library

# two_ranks PROGRAM [ENV...]: what two ranks of it print.
two_ranks() {
  local program=$1 meeting rank status=0 pids=()
  shift
  meeting=$(mktemp -d)
  for rank in 0 1; do
    timeout 120 env "$@" "$program" "file://$meeting/at" "$rank" 2 > "$meeting/$rank" &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=1; done
  cat "$meeting/0" "$meeting/1"
  rm -rf "$meeting"
  return "$status"
}
# digests PROGRAM LD_LIBRARY_PATH [EXPECTED]: two ranks print one digest, EXPECTED if given; says it.
digests() {
  local said digest
  said=$(two_ranks "$1" "LD_LIBRARY_PATH=$2") || return 1
  digest=$(sed -n 's/^rank [01] of 2: .*, digest //p' <<< "$said" | sort | uniq -c)
  if ! [[ $digest =~ ^\ *2\ [0-9a-f]{16}$ ]] || [ "${3:-$digest}" != "$digest" ]; then
    echo "test.sh: $1 says '$said'" >&2
    return 1
  fi
  echo "$digest"
}
# wants_shared PROGRAM: whether it is linked with libsymm.so.
wants_shared() { grep -q 'NEEDED.*libsymm\.so' <<< "$(readelf -d "$1")"; }

static_and_shared() {
  SYMM_STATIC=1 CARGO_TARGET_DIR=$products/target-static \
    cargo build --locked --quiet --release -p libsymm --example all_reduce || return 1
  local program=$products/target-static/release/examples/all_reduce
  "$here/build.sh" "$build" || return 1
  ! wants_shared "$program" && wants_shared "$products/all_reduce" || return 1
  digest=$(digests "$products/all_reduce" "") && digests "$program" "" "$digest"
}
digest=
check "the shared and the static library" static_and_shared

# ---- Packages ------------------------------------------------------------------------------------

outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT

# Cargo builds each package from its archive, as the last thing that it does.
packages() {
  rm -f "$CARGO_TARGET_DIR"/package/*.crate
  cargo package --locked --quiet --allow-dirty -p libsymm-sys -p libsymm || return 1
  local archive
  for archive in "$CARGO_TARGET_DIR"/package/libsymm*.crate; do tar -xzf "$archive" -C "$outside"; done
  [ -d "$outside"/libsymm-sys-* ] && [ -d "$outside"/libsymm-[0-9]* ] || return 1
  # What the checkout has by links to the library's folders the package has as files.
  diff -r "$here/libsymm-sys/symm" "$outside"/libsymm-sys-*/symm || return 1
  [ -z "$(find "$outside" -type l)" ]
}
check "packages" packages

# A project that knows nothing but the packages, and a machine that has no libsymm.
vendored() {
  local project=$outside/project package
  mkdir -p "$project/src"
  package=$(echo "$outside"/libsymm-[0-9]*)
  cp "$here/libsymm/examples/all_reduce.rs" "$project/src/main.rs"
  cat > "$project/Cargo.toml" << END
[package]
name = "project"
version = "1.0.0"
edition = "2021"

[dependencies]
libsymm = { path = "$package", features = ["vendored"] }

[patch.crates-io]
libsymm-sys = { path = "$(echo "$outside"/libsymm-sys-*)" }

[workspace]
END
  (
    unset SYMM_LIB_DIR LD_LIBRARY_PATH CARGO_TARGET_DIR
    cd "$project"
    export PKG_CONFIG_LIBDIR=$products/pc/none
    timeout 2400 cargo build --quiet || exit 1
    ! wants_shared target/debug/project || exit 1
    digests "$PWD/target/debug/project" "" "$digest" || exit 1
    # The same objects as a shared library, which stays where it was built.
    SYMM_STATIC=0 timeout 2400 cargo build --quiet || exit 1
    wants_shared target/debug/project || exit 1
    shared=$(dirname "$(find "$PWD/target/debug/build" -name libsymm.so)")
    digests "$PWD/target/debug/project" "$shared" "$digest"
  )
}
check "a project outside that builds the bundled library" vendored
