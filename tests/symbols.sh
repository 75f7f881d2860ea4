#!/usr/bin/env bash
# The dynamic symbols of libsymm.so are the functions of symm.h, each in its version node, and
# nothing else; it needs no library but those of C and C++, no symbol that these lack, and no newer
# version of them than README.md promises; libsymm.a has the same functions.
#
# Usage: symbols.sh SYMM_H LIBSYMM_SO LIBSYMM_A MAJOR CC README
set -euo pipefail

header=$1 shared=$2 static=$3 major=$4 cc=$5 readme=$6
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "symbols.sh: $*" >&2
  exit 1
}

# Compilers drop comments; no macro of symm.h takes arguments, so a name before ( is a function.
"$cc" -E -P "$header" | grep -oE '\bsymm_[a-z_0-9]+ *\(' | tr -d ' (' | sort > "$work/declared"
[ -s "$work/declared" ] || fail "no function found in $header"
[ -z "$(uniq -d "$work/declared")" ] || fail "declared twice: $(uniq -d "$work/declared")"

nm -D --defined-only "$shared" | awk '$2 != "A" {print $3}' | sort > "$work/exported"
# Functions keep the node of the version that they came with.
sed 's/$/@@SYMM_0.1/' "$work/declared" | sort > "$work/expected"
diff "$work/expected" "$work/exported" >&2 ||
  fail "exported symbols (>) are not the functions of symm.h (<)"
if nm -D --defined-only "$shared" | awk '$2 != "A" && $2 != "T"' | grep .; then
  fail "the symbols above are no functions"
fi
if nm -D --defined-only "$shared" | grep -E ' _Z'; then
  fail "the symbols above are of C++: they would meet those of other libraries"
fi

nm -g --defined-only "$static" 2> /dev/null | awk '$2 == "T" && $3 ~ /^symm_/ {print $3}' | sort \
  > "$work/archived"
diff "$work/declared" "$work/archived" >&2 ||
  fail "C functions of libsymm.a (>) are not those of symm.h (<)"

readelf -dW "$shared" > "$work/dynamic"
sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' "$work/dynamic" > "$work/needed"
if grep -vE '^(libc|libm|libpthread|libstdc\+\+|libgcc_s|ld-linux.*)\.so\.[0-9]+$' "$work/needed"; then
  fail "libsymm.so needs the libraries above"
fi
grep -q "(SONAME).*\[libsymm\.so\.$major\]" "$work/dynamic" || fail "SONAME is not libsymm.so.$major"
grep -qE 'FLAGS_1.*NODELETE' "$work/dynamic" || fail "dlclose would unmap running helper threads"
grep -qE 'FLAGS_1.*NOW' "$work/dynamic" || fail "symbols are not bound at load (-z now)"
readelf -lW "$shared" > "$work/segments"
grep -q GNU_RELRO "$work/segments" || fail "no read-only relocations (-z relro)"
if grep -q 'GNU_STACK.*RWE' "$work/segments"; then fail "the stack is executable"; fi
if grep -qE '\((RPATH|RUNPATH|TEXTREL)\)' "$work/dynamic"; then
  fail "libsymm.so has a run path or text relocations"
fi

# What the loader does not find in those libraries; and what no library is named for.
LC_ALL=C ldd -r "$shared" > "$work/loaded" 2>&1 || fail "ldd -r: $(cat "$work/loaded")"
if grep -E 'undefined symbol|not found' "$work/loaded"; then fail "libsymm.so cannot be loaded"; fi
if nm -D --undefined-only "$shared" | awk '$1 == "U" && $2 !~ /@/' | grep .; then
  fail "the symbols above are undefined in the libraries of C and C++"
fi

# newest NODE < VERSIONS: the highest version of a node.
newest() { grep -oE "\b$1_[0-9][0-9.]*" | sort -uV | tail -n 1; }
readelf -VW "$shared" > "$work/versions"
# Newer systems than the one that releases are built on (Debian 12, glibc 2.36) bind newer symbols.
libc=$(getconf GNU_LIBC_VERSION 2> /dev/null | sed 's/^glibc //')
for node in GLIBC GLIBCXX CXXABI; do
  needed=$(newest "$node" < "$work/versions")
  promised=$(newest "$node" < "$readme")
  [ -n "$needed" ] || continue
  [ -n "$promised" ] || fail "README.md does not say which $node libsymm.so needs"
  if [ "$(printf '%s\n' "$needed" "$promised" | sort -V | tail -n 1)" != "$promised" ]; then
    message="libsymm.so needs $needed, and README.md promises $promised at most"
    if [ "$(printf '%s\n' "${libc:-2.36}" 2.36 | sort -V | tail -n 1)" = 2.36 ]; then
      nm -D --undefined-only "$shared" | grep -F "$needed" >&2
      fail "$message: do without the symbols above, or change the promise"
    fi
    echo "not checked here, with glibc $libc: $message"
  fi
  echo "$needed"
done
echo "$(wc -l < "$work/declared") functions, needed: $(tr '\n' ' ' < "$work/needed")"
