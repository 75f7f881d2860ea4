# Sourced by this folder's scripts: `need_cargo` makes sure of a Rust compiler that is new enough, or
# fails, saying so. `oldest` is the version that the crates promise to build with.

oldest=$(sed -nE 's/^rust-version *= *"(.*)"/\1/p' "$here/Cargo.toml")

# new_enough: whether the cargo in PATH is.
new_enough() {
  local version
  version=$(cargo --version 2> /dev/null | awk '{print $2}') || return 1
  [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$oldest" "$version" | sort -V | head -n 1)" = "$oldest" ]
}

need_cargo() {
  export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
  new_enough && return 0
  # Distributions' own compilers are often older than this; rustup is packaged by newer ones.
  "$root/scripts/install_dependencies.sh" rustup > /dev/null 2>&1 || true
  if command -v rustup > /dev/null; then
    rustup toolchain install stable --profile minimal --component clippy --component rustfmt \
      > /dev/null 2>&1 || true
    rustup default stable > /dev/null 2>&1 || true
  fi
  new_enough && return 0
  echo "Rust $oldest or newer is needed, with cargo, and is not to be had here: install it by rustup" >&2
  return 1
}
