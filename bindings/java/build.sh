#!/usr/bin/env bash
# Builds the jar, build/bindings/java/symm.jar, without running its tests. Fast when up to date.
#
# Usage: build.sh BUILD_DIR
#   BUILD_DIR  CMake's build of libsymm, with libsymm.a in it
set -euo pipefail
exec < /dev/null
if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

library=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")"
output=$(cd ../.. && pwd)/build/bindings/java
mkdir -p "$output"
jar=$output/symm.jar

../../scripts/install_dependencies.sh build java

# Maven takes seconds to find out that nothing has changed.
newer() {
  find . ../swig ../../capi/symm.h ../../LICENSE -path ./src/test -prune -o \
    -type f -newer "$jar" -print -quit
}
stamp=$output/built_from
if [ -e "$jar" ] && [ "$(cat "$stamp" 2> /dev/null)" = "$library" ] &&
  [ "$jar" -nt "$library/libsymm.a" ] && [ -z "$(newer)" ]; then
  exit 0
fi
mvn -q -B -Dstyle.color=never -Dmaven.repo.local="$output/m2" -Dsymm.build="$library" -DskipTests package
cp "$output/maven/symm.jar" "$jar"
echo "$library" > "$stamp"
