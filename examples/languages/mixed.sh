#!/usr/bin/env bash
# One communicator whose ranks are each in another language: builds the bindings and the programs,
# runs them, and compares what they print with each other and with a sum computed without symm.
#
# Usage: examples/languages/mixed.sh [BUILD_DIR [LINE_UP...]]
#   BUILD_DIR  where CMake built symm (build/release)
#   LINE_UP    packages: a Rust, a Java, a Python, a Node.js and a C rank
#              dlopen: a Go, a LuaJIT, a Ruby, a ctypes, a C# rank and one of C with dlopen
#              both are run, one after the other, where none is named
# A language whose runtime is neither here nor to be had is left out, and the end says so.
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${1:-$root/build/release}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- packages dlopen
for line_up in "$@"; do
  case $line_up in packages | dlopen) ;; *)
    sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
  esac
done
if [ ! -e "$build/libsymm.so.0" ]; then
  echo "mixed.sh: there is no libsymm.so.0 in $build; build it first:" \
    "cmake --preset release && cmake --build --preset release" >&2
  exit 2
fi
build=$(cd "$build" && pwd)
out=$root/build/languages
clients=$root/build/dlopen
mkdir -p "$out"
# A user's own settings must not decide which library is used.
unset LD_LIBRARY_PATH PYTHONPATH PYTHONHOME CLASSPATH JAVA_TOOL_OPTIONS

left_out=()
ranks=()
# rank NAME WORD...: one more rank, which that command runs.
rank() {
  local name=$1
  shift
  ranks+=("$name=$(printf '%q ' "$@")")
}

# step NAME COMMAND...: what takes its time is quiet unless it fails.
step() {
  local name=$1 status=0
  shift
  echo "mixed.sh: $name"
  "$@" > "$out/build.log" 2>&1 || status=$?
  [ "$status" = 0 ] || {
    cat "$out/build.log" >&2
    echo "mixed.sh: $name failed with status $status" >&2
    exit 1
  }
}

# has NAME COMMAND: whether a language's runtime is here.
has() {
  command -v "$2" > /dev/null && return 0
  left_out+=("$1")
  return 1
}

# dlopen_client CLIENT NAME: a rank by a program of ../dlopen.
dlopen_client() {
  local words=()
  IFS=$'\t' read -r -a words < <(grep "^$1"$'\t' "$clients/clients.txt") || true
  if [ "${#words[@]}" = 0 ]; then left_out+=("$2"); else rank "$2" "${words[@]:1}"; fi
}

# Also where it takes an attempt to install it; a cargo that is too old is none.
rust_is_here() {
  # `here` is for the script that is sourced.
  (here=$root/bindings/rust && source "$here/toolchain.sh" && need_cargo) > "$out/build.log" 2>&1 &&
    return 0
  left_out+=(Rust)
  return 1
}

packages() {
  if rust_is_here; then
    step "building the Rust crate" "$root/bindings/rust/build.sh" "$build"
    rank Rust "$root/build/bindings/rust/all_reduce"
  fi
  if ! "$root/scripts/install_dependencies.sh" build java > "$out/build.log" 2>&1; then
    left_out+=(Java)
  else
    local jar=$root/build/bindings/java/symm.jar
    step "building the Java package" "$root/bindings/java/build.sh" "$build"
    step "compiling AllReduce.java" javac -cp "$jar" -d "$out/java" "$here/AllReduce.java"
    rank Java java -cp "$jar:$out/java" AllReduce
  fi
  step "building the Python package" "$root/bindings/python/build.sh" "$build"
  rank Python "$root/build/bindings/python/venv/bin/python" -B "$here/all_reduce.py"
  dlopen_client node Node.js

  local prefix=$clients/prefix pc flags words
  pc=$(dirname "$(find "$prefix" -name symm.pc)")
  flags=$(PKG_CONFIG_PATH=$pc pkg-config --define-prefix --cflags --libs symm)
  # pkg-config escapes for a shell.
  eval "words=($flags)"
  step "compiling all_reduce.c" cc -std=c99 -Wall -Wextra -Wpedantic -Werror -O2 \
    "$here/all_reduce.c" "${words[@]}" -Wl,-rpath,"$(dirname "$pc")" -o "$out/all_reduce"
  rank C "$out/all_reduce"
}

dlopen() {
  dlopen_client go Go
  dlopen_client luajit LuaJIT
  dlopen_client ruby Ruby
  dlopen_client ctypes ctypes
  dlopen_client csharp "C#"
  dlopen_client c-dlopen "C by dlopen"
}

step "building the programs of examples/dlopen" "$root/examples/dlopen/build.sh" "$build"
export SYMM_LIBRARY=$clients/libsymm.so.0 SYMM_DECLARATIONS=$clients/symm.ffi

failed=0
for line_up in "$@"; do
  ranks=()
  "$line_up"
  python3 -B "$here/mixed.py" --seconds 100 "${ranks[@]}" || failed=1
done
for language in "${left_out[@]}"; do
  echo "mixed.sh: LEFT OUT: $language, whose runtime is not to be had here" >&2
done
exit "$failed"
