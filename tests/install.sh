#!/usr/bin/env bash
# Installs a build into an empty prefix, moves the prefix, and builds and runs a user's programs
# against it: C and C++, shared and static, by pkg-config and by find_package.
#
# Usage: install.sh BUILD_DIR VERSION CMAKE CC CXX
set -euo pipefail

build=$1 version=$2 cmake=$3 cc=$4 cxx=$5
consumer=$(cd "$(dirname "$0")/consumer" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A user's own settings must not decide what is found.
unset LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH CFLAGS CXXFLAGS LDFLAGS DESTDIR

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# A name that every tool has to quote.
prefix="$work/a prefix"
"$cmake" --install "$build" --prefix "$work/first" > "$work/install.log"
mv "$work/first" "$prefix"

pc=$(find "$prefix" -name symm.pc)
[ -n "$pc" ] || fail "symm.pc is not installed"
libdir=$(dirname "$(dirname "$pc")")
[ -f "$prefix/include/symm.h" ] || fail "symm.h is not installed"
[ "$(find "$prefix/include" -type f | wc -l)" = 1 ] || fail "more than symm.h is in include/"
for name in libsymm.a libsymm.so libsymm.so.0 "libsymm.so.$version" cmake/symm/symmConfig.cmake; do
  [ -e "$libdir/$name" ] || fail "$name is not installed"
done

# expect_version NAME PROGRAM: it runs, and is of this version.
expect_version() {
  local said
  said=$(timeout 60 "$2") || fail "$1: the program failed"
  [ "$said" = "$version" ] || fail "$1: version '$said' where '$version' was expected"
  echo "ok: $1"
}

# expect_library NAME PROGRAM shared|static: whether libsymm.so is asked for at run time.
expect_library() {
  local needs=static
  if grep -q 'NEEDED.*libsymm\.so\.0' <<< "$(readelf -d "$2")"; then needs=shared; fi
  [ "$needs" = "$3" ] || fail "$1: linked $needs, not $3"
}

for program in symm-perf symm-doctor; do
  timeout 60 "$prefix/bin/$program" --help > "$work/help.txt" ||
    fail "the installed $program does not find its library, or has no --help"
  grep -q "$program" "$work/help.txt" || fail "$program --help does not say what it is"
  echo "ok: $program"
done

# by_pkg_config NAME shared|static COMPILER SOURCE [OPTION...]
by_pkg_config() {
  local name=$1 kind=$2 compiler=$3 source=$4 flags
  shift 4
  # pkg-config escapes for a shell.
  flags=$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config "$@" --cflags --libs symm)
  eval "'$compiler' '$consumer/$source' -o '$work/program' $flags -Wl,-rpath,'$libdir'"
  expect_library "$name" "$work/program" "$kind"
  expect_version "$name" "$work/program"
}

[ "$(PKG_CONFIG_PATH="$libdir/pkgconfig" pkg-config --modversion symm)" = "$version" ] ||
  fail "pkg-config --modversion is not $version"
by_pkg_config "C by pkg-config" shared "$cc" consumer.c
by_pkg_config "C++ by pkg-config" shared "$cxx" consumer.cpp

for language in C CXX; do
  for config in Release Debug; do
    tree="$work/$language $config"
    "$cmake" -S "$consumer" -B "$tree" -DLANGUAGE="$language" -DWANTED_VERSION="${version%.*}" \
      -DCMAKE_BUILD_TYPE="$config" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
      -DCMAKE_CXX_COMPILER="$cxx" > "$work/cmake.log" 2>&1 ||
      { cat "$work/cmake.log" >&2; fail "find_package in a project of $language failed"; }
    "$cmake" --build "$tree" > "$work/cmake.log" 2>&1 ||
      { cat "$work/cmake.log" >&2; fail "a project of $language does not build"; }
    for kind in shared static; do
      expect_library "$language $config by find_package, $kind" "$tree/$kind" "$kind"
      expect_version "$language $config by find_package, $kind" "$tree/$kind"
    done
  done
done

# What is newer than the installed one, and another major version.
for wanted in "${version%%.*}.999" "$((${version%%.*} + 1)).0"; do
  if "$cmake" -S "$consumer" -B "$work/wants $wanted" -DLANGUAGE=C -DWANTED_VERSION="$wanted" \
    -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" > "$work/cmake.log" 2>&1; then
    fail "find_package took version $version for $wanted"
  fi
done
echo "ok: other versions are refused"

# With libsymm.a alone, as in a package of static libraries.
rm "$libdir"/libsymm.so*
by_pkg_config "C by pkg-config, static" static "$cc" consumer.c --static
by_pkg_config "C++ by pkg-config, static" static "$cxx" consumer.cpp --static
