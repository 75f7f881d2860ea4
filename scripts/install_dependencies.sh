#!/usr/bin/env bash
# Installs what is missing of the things asked for, on Debian and Ubuntu as root or with sudo;
# elsewhere prints what to install and fails.
#
# Usage: install_dependencies.sh GROUP...   GROUP: build, cuda, data, test, fuzz, format,
# dlopen, or one language: java, python, luajit, ruby, mono, node, go, rust (what its crates' tests
# need beside Rust itself), rustup (where it is packaged)
set -euo pipefail
exec < /dev/null

has() { command -v "$1" > /dev/null 2>&1; }

# compiles COMPILER TEXT [OPTION...]: whether it makes a program of that text.
compiles() {
  local compiler=$1 text=$2 directory status=0
  shift 2
  has "$compiler" || return 1
  directory=$(mktemp -d)
  echo "$text" > "$directory/probe.cpp"
  "$compiler" "$directory/probe.cpp" -o "$directory/probe" "$@" > /dev/null 2>&1 || status=1
  rm -rf "$directory"
  return "$status"
}

has_python_headers() {
  has python3 && test -e "$(python3 -c 'import sysconfig as s; print(s.get_path("include"))')/Python.h"
}
has_ensurepip() { has python3 && python3 -c 'import ensurepip, venv' > /dev/null 2>&1; }
# MPI's headers, not only its commands.
has_mpi() { has mpirun && has mpicc && compiles mpicc '#include <mpi.h>' -E; }
# Of the administrator's commands, which not everybody's PATH has.
has_debootstrap() { has debootstrap || [ -x /usr/sbin/debootstrap ]; }
has_fiddle() { has ruby && ruby -e 'require "fiddle"' > /dev/null 2>&1; }
has_gtest() { compiles g++ '#include <gtest/gtest.h>' -E; }
# A library, and headers of the compiler's own beside it.
has_libclang() { compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' > /dev/null && has_clang_headers; }
has_clang_headers() { compgen -G '/usr/lib/llvm-*/lib/clang/*/include/stddef.h' > /dev/null ||
  compgen -G '/usr/lib/clang/*/include/stddef.h' > /dev/null; }
has_fuzzer() {
  compiles clang++ 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) {
    return 0; }' -fsanitize=fuzzer,address,undefined
}
available() { has apt-cache && [ -n "$(apt-cache search --names-only "^$1\$" 2> /dev/null)" ]; }

missing=()
# need PACKAGE PROBE...: the package, unless the probe finds what it is for.
need() {
  local package=$1
  shift
  "$@" || missing+=("$package")
}

need_group() {
  case $1 in
    build)
      need g++ has g++
      need gcc has gcc
      need cmake has cmake
      need ninja-build has ninja
      ;;
    cuda | data)
      need python3-venv has_ensurepip
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    test)
      need libgtest-dev has_gtest
      need pkg-config has pkg-config
      need binutils has readelf
      need iproute2 has ip
      need openmpi-bin has mpirun
      need libopenmpi-dev has_mpi
      need util-linux has setarch
      need abigail-tools has abidiff
      need doxygen has doxygen
      # Packages, and the clean root that they are installed in.
      need dpkg-dev has dpkg-shlibdeps
      need file has file
      need debootstrap has_debootstrap
      ;;
    fuzz) need clang has clang++ ;;
    python)
      need python3-venv has_ensurepip
      need python3-dev has_python_headers
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    dlopen)
      need python3 has python3
      need pkg-config has pkg-config
      ;;
    luajit) need luajit has luajit ;;
    ruby) need ruby has_fiddle ;;
    mono)
      need mono-mcs has mcs
      need mono-runtime has mono
      ;;
    node)
      need nodejs has node
      need npm has npm
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    go)
      need golang-go has go
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    rust)
      need libclang-dev has_libclang
      need pkg-config has pkg-config
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    rustup) need rustup has rustup ;;
    java)
      # The JDK: see below.
      need maven has mvn
      need python3-venv has_ensurepip
      need binutils has readelf
      need util-linux has flock
      need ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
      ;;
    format) need clang-format-14 has clang-format-14 ;;
    *)
      echo "install_dependencies.sh: unknown group '$1'" >&2
      exit 2
      ;;
  esac
}

# A compiler for Java 17, and jni.h.
has_jdk() {
  local version
  has javac && version=$(javac -version 2>&1) || return 1
  version=${version#javac }
  [ "${version%%[!0-9]*}" -ge 17 ] 2> /dev/null &&
    [ -e "$(dirname "$(readlink -f "$(command -v javac)")")/../include/jni.h" ]
}

# How to become root; fails, saying what to install, where that cannot be.
as_root=()
prepare_root() {
  if ! has apt-get; then
    echo "Missing, by the names that Debian and Ubuntu give them: $*" >&2
    echo "Install them by this system's package manager, then run this command again." >&2
    exit 1
  fi
  [ "$(id -u)" != 0 ] || return 0
  # Without a terminal sudo cannot ask for a password.
  if has sudo && { [ -t 2 ] || sudo -n true 2> /dev/null; }; then
    as_root=(sudo)
    return 0
  fi
  echo "Missing: $*" >&2
  echo "As root, run: apt-get update && apt-get install -y --no-install-recommends $*" >&2
  exit 1
}

install() {
  prepare_root "$@"
  echo "Installing: $*"
  # The lists of a fresh machine are empty or old.
  if ! apt_install "$@" > /dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q > /dev/null
    apt_install "$@" > /dev/null
  fi
}

apt_install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends "$@"
}

for group in "$@"; do need_group "$group"; done
[ "${#missing[@]}" = 0 ] || install "${missing[@]}"

# The runtime of clang's sanitizers is a package by the version of the clang that came; where there
# is none it lies in clang's own.
if [[ " $* " == *" fuzz "* ]] && ! has_fuzzer; then
  version=$(clang++ -dumpversion | cut -d. -f1)
  runtime=libclang-rt-$version-dev
  available "$runtime" || runtime=libclang-common-$version-dev
  install "$runtime"
  if ! has_fuzzer; then
    echo "clang++ $version still cannot link -fsanitize=fuzzer,address,undefined" >&2
    exit 1
  fi
fi

# Java 17 by its number where there is one: a distribution's default may be older, or newer.
if [[ " $* " == *" java "* ]] && ! has_jdk; then
  install openjdk-17-jdk-headless || install default-jdk-headless
  if ! has_jdk; then
    echo "There is no JDK 17 or newer with jni.h: put its javac first in PATH" >&2
    exit 1
  fi
fi
