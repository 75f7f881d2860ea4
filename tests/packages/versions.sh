#!/usr/bin/env bash
# One version everywhere: capi/symm.h states it, and whatever else names it agrees.
#
# Usage: versions.sh SOURCE_DIR BUILD_DIR
set -euo pipefail

source=$1 build=$2
wrong=0

part() { sed -nE "s/.*\bSYMM_VERSION_$1 *= *([0-9]+).*/\1/p" "$source/capi/symm.h"; }
version=$(part MAJOR).$(part MINOR).$(part PATCH)
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
  { echo "versions.sh: symm.h states no version, but '$version'" >&2; exit 1; }

# agrees WHAT VERSION
agrees() {
  if [ "$2" = "$version" ]; then
    echo "ok: $1"
  else
    echo "versions.sh: $1 says '$2', capi/symm.h $version: change the one that is wrong" >&2
    wrong=1
  fi
}
# first FILE SED_EXPRESSION
first() { sed -nE "$2;T;q" "$1"; }

agrees CHANGELOG.md "$(first "$source/CHANGELOG.md" 's/^## ([0-9][0-9.]*).*/\1/p')"
agrees symm.pc "$(first "$build/symm.pc" 's/^Version: *(.*)/\1/p')"
agrees symmConfigVersion.cmake \
  "$(first "$build/symmConfigVersion.cmake" 's/^set\(PACKAGE_VERSION "(.*)"\).*/\1/p')"
agrees "the packages" "$(first "$build/CPackConfig.cmake" 's/^set\(CPACK_PACKAGE_VERSION "(.*)"\).*/\1/p')"
agrees "libsymm.so's file name" "$(realpath "$build/libsymm.so" | sed 's/.*\.so\.//')"
# The library itself, as every language sees it.
agrees "the frozen client's library" \
  "$("$build/tests/abi/abi_client_0.1" | sed 's/.*library //' |
    awk '{printf "%d.%d.%d", $1 / 1000000, $1 / 1000 % 1000, $1 % 1000}')"

# Functions keep the node of the version that they came with: none is of the future.
while read -r node; do
  newest=$(printf '%s\n' "$node" "${version%.*}" | sort -V | tail -n 1)
  [ "$newest" = "${version%.*}" ] ||
    { echo "versions.sh: symm.map has SYMM_$node, which is newer than symm.h ($version)" >&2; wrong=1; }
done < <(sed -nE 's/^SYMM_([0-9.]+) .*/\1/p' "$source/capi/symm.map")

# A tagged commit is the release that its tag names.
while read -r tag; do agrees "tag $tag of this commit" "${tag#v}"; done \
  < <(git -C "$source" tag --points-at HEAD --list 'v[0-9]*' 2> /dev/null || true)

# Bindings: a version that is written out must be this one. A fresh/ is a project of a test.
if [ -d "$source/bindings" ]; then
  while read -r file; do
    name=${file#"$source/"}
    case $file in
      */pyproject.toml)
        # `dynamic = ["version"]` takes it from elsewhere.
        grep -qE '^dynamic *=.*version' "$file" && continue
        agrees "$name" "$(first "$file" 's/^version *= *"(.*)".*/\1/p')"
        ;;
      */Cargo.toml)
        grep -q '^version.workspace' "$file" && continue
        # A virtual workspace has none, or one for its members.
        said=$(first "$file" 's/^version *= *"(.*)".*/\1/p')
        [ -z "$said" ] && grep -q '^\[workspace\]' "$file" && continue
        # VERSION+symm.VERSION: the crate's own, and the library's that it is for.
        agrees "$name" "${said%%+*}"
        [ "$said" = "${said%%+*}" ] || agrees "$name, after +symm." "${said#*+symm.}"
        ;;
      */pom.xml)
        # Of the project, not of what it depends on; a module may leave it to its parent.
        said=$(first <(sed '/<parent>/,/<\/parent>/d; /<dependenc/,$d; /<build>/,$d' "$file") \
          's/.*<version>(.*)<\/version>.*/\1/p')
        [ -n "$said" ] || said=$(first "$file" 's/.*<version>(.*)<\/version>.*/\1/p')
        agrees "$name" "$said"
        ;;
      */gradle.properties | */build.gradle*)
        said=$(first "$file" "s/^version *= *[\"']?([0-9][^\"']*)[\"']? *\$/\1/p")
        [ -z "$said" ] || agrees "$name" "$said"
        ;;
    esac
  done < <(find "$source/bindings" \( -name target -o -name build -o -name fresh -o -name node_modules -o -name '.*' \) \
    -prune -o -type f -print | sort)
fi
exit "$wrong"
