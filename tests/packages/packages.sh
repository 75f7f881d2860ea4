#!/usr/bin/env bash
# Makes the packages of a build and looks at them: names, control fields, dependencies, exactly the
# files that each is for, owners and modes. The README's program is built against the unpacked
# .tar.gz. With lintian on the machine its errors count too.
#
# Usage: packages.sh BUILD_DIR OUTPUT_DIR VERSION CPACK CC README
set -euo pipefail

build=$1 output=$2 version=$3 cpack=$4 cc=$5 readme=$6
here=$(cd "$(dirname "$0")" && pwd)
major=${version%%.*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH CFLAGS CXXFLAGS LDFLAGS DESTDIR

fail() {
  echo "packages.sh: $*" >&2
  exit 1
}
skip() {
  echo "skipped: $*"
  exit 77
}
for tool in dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" > /dev/null || skip "$tool is not here (scripts/install_dependencies.sh test)"
done

rm -rf "$output"
mkdir -p "$output"
# Some other umask must not show in the packages.
(umask 077 && "$cpack" --config "$build/CPackConfig.cmake" -B "$output") > "$work/cpack.log" 2>&1 ||
  { cat "$work/cpack.log" >&2; fail "cpack failed"; }
rm -rf "$output/_CPack_Packages"
architecture=$(dpkg --print-architecture)

# package NAME DEPENDS_PATTERN FILE...: FILE as in `tar -t`, without ./usr/; directories are not
# listed.
package() {
  local name=$1 depends=$2 deb=$output/${1}_${version}_$architecture.deb
  shift 2
  [ -f "$deb" ] || fail "no $(basename "$deb"), only: $(cd "$output" && echo *)"
  local field
  for field in "Package=$name" "Version=$version" "Architecture=$architecture" \
    "Priority=optional"; do
    [ "$(dpkg-deb -f "$deb" "${field%%=*}")" = "${field#*=}" ] ||
      fail "$name: ${field%%=*} is '$(dpkg-deb -f "$deb" "${field%%=*}")', not '${field#*=}'"
  done
  for field in Maintainer Section Installed-Size Description; do
    [ -n "$(dpkg-deb -f "$deb" "$field")" ] || fail "$name: no $field"
  done
  grep -qE "$depends" <<< "$(dpkg-deb -f "$deb" Depends)" ||
    fail "$name: Depends is '$(dpkg-deb -f "$deb" Depends)', which is not as in $depends"
  dpkg-deb --fsys-tarfile "$deb" | tar -tv > "$work/list"
  if awk '$2 != "root/root"' "$work/list" | grep .; then fail "$name: the above is not root's"; fi
  # Directories and programs 755, files 644, links.
  if awk '$1 !~ /^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx)$/' "$work/list" | grep .; then
    fail "$name: the above has an unusual mode"
  fi
  awk '$1 !~ /^d/ {print $6}' "$work/list" | sed 's,^\./usr/,,' | sort > "$work/files"
  printf '%s\n' "$@" "share/doc/$name/changelog.gz" "share/doc/$name/copyright" | sort \
    > "$work/expected"
  diff "$work/expected" "$work/files" >&2 || fail "$name has other files (>) than it should (<)"
  echo "ok: $name: $(dpkg-deb -f "$deb" Depends)"
}

# The library's dependencies are dpkg-shlibdeps' finding, with versions; the others are of one make.
package "libsymm$major" '^libc6 \(>= [0-9.]+\).*libstdc\+\+6 \(>= [0-9.]+\)' \
  "lib/libsymm.so.$major" "lib/libsymm.so.$version"
package libsymm-dev "(^|, )libsymm$major \(= $version\)" include/symm.h lib/libsymm.a \
  lib/libsymm.so lib/pkgconfig/symm.pc lib/cmake/symm/symmConfig.cmake \
  lib/cmake/symm/symmConfigVersion.cmake lib/cmake/symm/symmTargets.cmake \
  lib/cmake/symm/symmTargets-release.cmake
package symm-tools "libsymm$major \(= $version\)" bin/symm-doctor bin/symm-perf \
  lib/symm/symm-perf-torch.py
if [ -f "$build/examples/symm-perf-mpi.so" ]; then
  package symm-tools-mpi "symm-tools \(= $version\).*openmpi" lib/symm/symm-perf-mpi.so
fi
dpkg-deb -e "$output/libsymm${major}_${version}_$architecture.deb" "$work/control"
grep -qx "libsymm $major libsymm$major (>= $version)" "$work/control/shlibs" ||
  fail "libsymm$major: packages that need it cannot find its name in DEBIAN/shlibs"
grep -q ldconfig "$work/control/triggers" || fail "libsymm$major does not renew the loader's cache"
dpkg-deb --fsys-tarfile "$output/libsymm${major}_${version}_$architecture.deb" |
  tar -xO "./usr/lib/libsymm.so.$version" > "$work/stripped.so"
readelf -SW "$work/stripped.so" > "$work/sections"
if grep -qE '\.(debug_info|symtab)' "$work/sections"; then
  fail "libsymm$major is not stripped"
fi

if command -v lintian > /dev/null; then
  # CPack's own scripts call ldconfig; the maintainer's address is that of whoever releases.
  tags=bogus-mail-host,bogus-mail-host-in-debian-changelog
  lintian --allow-root --fail-on error --suppress-tags "$tags" "$output"/*.deb \
    > "$work/lintian" 2>&1 || { cat "$work/lintian" >&2; fail "lintian has errors"; }
  echo "ok: lintian"
fi

archive=$output/symm-$version-linux-$(uname -m).tar.gz
[ -f "$archive" ] || fail "no $(basename "$archive"), only: $(cd "$output" && echo *)"
mkdir "$work/unpacked"
tar -xzf "$archive" -C "$work/unpacked"
prefix=$work/unpacked/$(basename "$archive" .tar.gz)
[ "$(ls "$work/unpacked")" = "$(basename "$prefix")" ] ||
  fail "the .tar.gz does not unpack into one directory of its name"
# What is installed belongs to a package too.
(cd "$prefix" && find . ! -type d ! -path './share/doc/*' | sort) > "$work/all"
for deb in "$output"/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -t; done |
  sed -n 's,^\./usr/,./,p' | grep -vE '/$|^\./share/doc/' | sort > "$work/packed"
diff "$work/all" "$work/packed" >&2 ||
  fail "files of the .tar.gz (<) and of the packages (>) differ: see COMPONENT in install()"
[ -f "$prefix/share/doc/symm/LICENSE" ] || fail "the .tar.gz has no licence"
"$here/readme_program.sh" "$readme" > "$work/program.c"
flags=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs symm)
# shellcheck disable=SC2086
"$cc" "$work/program.c" -o "$work/program" $flags -Wl,-rpath,"$prefix/lib"
said=$(RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 timeout 60 "$work/program")
[ "$said" = "rank 0: 0 1 2 3" ] || fail "the README's program says '$said'"
timeout 60 "$prefix/bin/symm-perf" --help > /dev/null || fail "the unpacked symm-perf does not start"
echo "ok: $(basename "$archive")"
