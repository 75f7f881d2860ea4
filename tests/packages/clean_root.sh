#!/usr/bin/env bash
# Installs the .deb packages in a clean Debian or Ubuntu of this release, builds the README's
# program there as C and C++, by pkg-config and by find_package, runs it as two ranks, and removes
# the packages again: nothing may stay. The clean root is made once, by debootstrap, and kept as an
# archive; every run unpacks it into memory and has it to itself.
#
# Ends with 77 and a reason where it cannot: not root, no namespaces, no debootstrap, no network.
#
# Usage: clean_root.sh PACKAGES_DIR VERSION README CONSUMER_DIR
# SYMM_TEST_CACHE: where the archive is kept (~/.cache/symm).
set -euo pipefail

packages=$1 version=$2 readme=$3 consumer=$4
here=$(cd "$(dirname "$0")" && pwd)
# Bounds, of which the network takes most.
make_seconds=280 run_seconds=170

skip() {
  echo "skipped: $*"
  exit 77
}

# ---- Outside: a root and name spaces ----------------------------------------------------------

if [ "${5:-}" != inside ]; then
  [ "$(id -u)" = 0 ] || skip "needs root"
  command -v debootstrap > /dev/null ||
    skip "debootstrap is not here (scripts/install_dependencies.sh test)"
  # A name space of mounts and one of networks: nothing of this is seen outside, or stays.
  unshare --mount --net true 2> /dev/null || skip "this machine allows no name spaces"
  # shellcheck disable=SC1091
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 2> /dev/null |
    awk -v name="$codename" '$2 == name && $3 == "main" && !found++ {print $1}')
  [ -n "$codename" ] && [ -n "$mirror" ] || skip "apt names no mirror of this system's release"

  cache=${SYMM_TEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/symm}
  archive=$cache/root-$codename-$(dpkg --print-architecture).tar
  if [ ! -f "$archive" ]; then
    mkdir -p "$cache"
    log=$cache/debootstrap.log
    status=0
    # In memory, where nothing waits for a disk.
    # shellcheck disable=SC2016
    timeout "$make_seconds" unshare --mount bash -euc '
      mount -t tmpfs -o size=3G tmpfs /mnt
      debootstrap --variant=minbase --include=gcc,g++,make,cmake,pkg-config "$1" /mnt "$2"
      rm -rf /mnt/var/cache/apt/archives/*.deb /mnt/var/lib/apt/lists/*
      tar -C /mnt --one-file-system --exclude=./proc/\* --exclude=./sys/\* -cf "$3" .
    ' make "$codename" "$mirror" "$archive.$$" > "$log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
      rm -f "$archive.$$"
      tail -n 3 "$log"
      skip "debootstrap made no clean root within $make_seconds s (status $status, $log)"
    fi
    mv "$archive.$$" "$archive"
  fi
  status=0
  timeout "$run_seconds" unshare --mount --net bash "$0" "$packages" "$version" "$readme" \
    "$consumer" inside "$archive" || status=$?
  [ "$status" != 124 ] || echo "clean_root.sh: no end within $run_seconds s" >&2
  exit "$status"
fi

# ---- Inside -----------------------------------------------------------------------------------

archive=$6
root=/mnt
fail() {
  echo "clean_root.sh: $*" >&2
  exit 1
}

mount -t tmpfs -o size=3G tmpfs "$root"
tar -xf "$archive" -C "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
ip link set lo up

in_root() {
  chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
    DEBIAN_FRONTEND=noninteractive "$@"
}
# What dpkg and ldconfig keep for themselves does not count.
files() {
  (cd "$root" && find . -xdev ! -path './proc/*' ! -path './dev/*' ! -path './tmp/*' \
    ! -path './var/lib/dpkg/*' ! -path './var/log/*' ! -path './var/cache/ldconfig/*' | sort)
}

mkdir "$root/tmp/packages"
cp "$packages"/libsymm*.deb "$packages"/symm-tools_*.deb "$root/tmp/packages"
files > /tmp/before.$$
trap 'rm -f /tmp/before.$$ /tmp/after.$$' EXIT
mapfile -t names < <(for deb in "$root"/tmp/packages/*.deb; do dpkg-deb -f "$deb" Package; done)

# No download: what they depend on is what a system with a compiler has.
in_root sh -c 'dpkg -i /tmp/packages/*.deb' > "$root/tmp/log" 2>&1 ||
  { cat "$root/tmp/log" >&2; fail "dpkg -i failed"; }
[ -z "$(in_root dpkg --audit)" ] || fail "dpkg --audit: $(in_root dpkg --audit)"
# Not a pipe: grep -q ends at its match, and the writer would then die of SIGPIPE.
grep -q "libsymm\.so\.${version%%.*} " <<< "$(in_root ldconfig -p)" || fail "the loader's cache lacks libsymm"
echo "ok: ${names[*]} are installed"

# runs NAME PROGRAM: two ranks add up, the way README.md starts them.
port=29500
runs() {
  local rank
  for rank in 0 1; do
    in_root env RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout 60 "$2" \
      > "$root/tmp/said.$rank" 2>&1 &
  done
  wait
  port=$((port + 1))
  for rank in 0 1; do
    [ "$(cat "$root/tmp/said.$rank")" = "rank $rank: 1 3 5 7" ] ||
      fail "$1: rank $rank says: $(cat "$root/tmp/said.$rank")"
  done
  echo "ok: $1"
}

project=$root/tmp/project
mkdir "$project"
"$here/readme_program.sh" "$readme" > "$project/consumer.c"
cp "$project/consumer.c" "$project/consumer.cpp"
cp "$consumer/CMakeLists.txt" "$project"
for language in C CXX; do
  source=consumer.c compiler=cc
  [ $language = C ] || { source=consumer.cpp compiler=c++; }
  in_root sh -ec "cd /tmp/project && $compiler $source -o program \$(pkg-config --cflags --libs symm)"
  runs "$language by pkg-config" /tmp/project/program
  in_root sh -ec "cd /tmp/project && cmake -S . -B $language -DLANGUAGE=$language \
    -DWANTED_VERSION=${version%.*} && cmake --build $language" > "$root/tmp/log" 2>&1 ||
    { cat "$root/tmp/log" >&2; fail "find_package in a project of $language failed"; }
  runs "$language by find_package, shared" "/tmp/project/$language/shared"
  runs "$language by find_package, static" "/tmp/project/$language/static"
done
in_root symm-doctor --help > /dev/null && in_root symm-perf --help > /dev/null ||
  fail "the installed programs do not start"

in_root dpkg --purge "${names[@]}" > "$root/tmp/log" 2>&1 ||
  { cat "$root/tmp/log" >&2; fail "dpkg --purge failed"; }
if in_root ldconfig -p | grep libsymm; then fail "the loader's cache still has the above"; fi
files > /tmp/after.$$
diff /tmp/before.$$ /tmp/after.$$ >&2 || fail "removing the packages left (>) or took (<) the above"
echo "ok: nothing stays"
