#!/usr/bin/env bash
# Builds and tests the Rust crates. Ends with one line, 'N passed, N failed'; fails if anything did.
#
# Usage: test.sh [--bench] BUILD_DIR
#   BUILD_DIR  has libsymm.so and libsymm.a (build/release); products go under build/bindings/rust
#   --bench    measures the crate against the C interface as well
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bench=0
if [ "${1:-}" = --bench ]; then
  bench=1
  shift
fi
[ $# = 1 ] || { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
build=$(cd "$1" && pwd)
source "$here/toolchain.sh"

products=$root/build/bindings/rust
results=$products/results
export CARGO_TARGET_DIR=$products/target SYMM_LIB_DIR=$build LD_LIBRARY_PATH=$build
export CARGO_TERM_COLOR=never
unset SYMM_STATIC DOCS_RS RUSTFLAGS RUSTDOCFLAGS SYMM_UPDATE_BINDINGS
passed=0 failed=0

say() { printf '\n-- rust: %s (%d min %02d s)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
end() {
  say "end"
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
  exit
}
pass() { passed=$((passed + 1)); }
fail() {
  echo "test.sh: failed: $*" >&2
  failed=$((failed + 1))
}
# check NAME COMMAND...: one thing that passes or fails.
check() {
  local name=$1
  shift
  say "$name"
  if "$@"; then pass; else fail "$name"; fi
}
# tests NAME COMMAND...: a run of cargo's, whose tests are counted one by one.
tests() {
  local name=$1 log status=0 ran bad
  shift
  say "$name"
  log=$results/$(tr -c 'a-z0-9\n' _ <<< "$name").log
  timeout 1200 "$@" > "$log" 2>&1 || status=$?
  grep -E '^test result:' "$log" || true
  ran=$(sed -nE 's/^test result:.* ([0-9]+) passed;.*/\1/p' "$log" | paste -sd+ | bc_sum)
  bad=$(sed -nE 's/^test result:.* ([0-9]+) failed;.*/\1/p' "$log" | paste -sd+ | bc_sum)
  passed=$((passed + ran))
  failed=$((failed + bad))
  if [ "$status" != 0 ] || [ "$ran" = 0 ]; then
    cat "$log" >&2
    # A run that broke off counts, too.
    [ "$bad" != 0 ] || fail "$name (status $status, $ran tests)"
  fi
}
bc_sum() {
  local sum
  read -r sum || sum=0
  echo $((${sum:-0}))
}

# ---- What is needed ------------------------------------------------------------------------------

say "what is needed"
"$root/scripts/install_dependencies.sh" build rust
if ! need_cargo; then
  echo "test.sh: SKIPPED: the Rust crates are neither built nor tested on this machine" >&2
  end
fi
rm -rf "$results"
mkdir -p "$results"
cd "$here"
cargo fetch --locked --quiet

# ---- Sources -------------------------------------------------------------------------------------

if cargo fmt --version > /dev/null 2>&1; then
  check "formatting" cargo fmt --all --check
else
  echo "test.sh: SKIPPED: formatting is not checked: there is no rustfmt" >&2
fi

clippy() {
  local features
  for features in "--no-default-features" "" "--features cudarc" "--all-features"; do
    echo "clippy ${features:---features default}"
    # Of nothing that is quoted: options.
    # shellcheck disable=SC2086
    cargo clippy --locked --quiet --workspace --all-targets $features -- -D warnings || return 1
  done
}
if cargo clippy --version > /dev/null 2>&1; then
  check "clippy" clippy
else
  echo "test.sh: SKIPPED: there is no clippy" >&2
fi

# ---- Tests ---------------------------------------------------------------------------------------

export RUST_BACKTRACE=0
cargo build --locked --quiet -p libsymm --examples || fail "examples"
tests "tests" cargo test --locked --no-fail-fast --features libsymm-sys/bindgen \
  -p libsymm -p libsymm-sys --lib --tests
if [ -e /dev/nvidiactl ]; then
  tests "tests on a GPU" cargo test --locked --no-fail-fast --features cudarc -p libsymm \
    --test cuda -- --ignored
else
  echo "test.sh: SKIPPED: the tests of the feature cudarc are only compiled: there is no GPU here" >&2
fi

# The code of the error that an example must not compile with is only compared by the compiler's
# unstable side, so rustdoc, and nothing else, is told that it may.
cat > "$products/rustdoc" << 'END'
#!/bin/sh
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
END
chmod +x "$products/rustdoc"
tests "examples in the documentation" env "RUSTDOC=$products/rustdoc" \
  cargo test --locked -p libsymm --doc --features cudarc

# As docs.rs does: with no library anywhere.
documentation() {
  env -u SYMM_LIB_DIR DOCS_RS=1 PKG_CONFIG_LIBDIR=/nonexistent RUSTDOCFLAGS="-D warnings" \
    cargo doc --locked --quiet --no-deps -p libsymm -p libsymm-sys --features cudarc
}
check "documentation, where there is no library" documentation

# ---- The oldest compiler -------------------------------------------------------------------------

if rustup toolchain install "$oldest" --profile minimal > /dev/null 2>&1; then
  # `cudarc` is of those who use it: what it needs asks for newer compilers.
  tests "tests by Rust $oldest" env "CARGO_TARGET_DIR=$products/target-$oldest" \
    cargo "+$oldest" test --locked --no-fail-fast -p libsymm -p libsymm-sys
else
  echo "test.sh: SKIPPED: Rust $oldest, the oldest compiler promised, is not to be had here; clippy" >&2
  echo "  has looked for what is newer, by rust-version" >&2
fi

# ---- Linking and packages ------------------------------------------------------------------------

source "$here/packages.sh"

# ---- Speed ---------------------------------------------------------------------------------------

if [ "$bench" = 1 ]; then
  say "speed"
  cargo bench --locked --quiet -p benches -- --noplot 2>&1 | grep -E 'time:|in turns' || fail "speed"
fi

end
