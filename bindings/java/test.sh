#!/usr/bin/env bash
# Builds the jar and runs every test of the Java binding, after installing what that needs. Ends
# with one line, 'N passed, N failed'; fails if anything did. The jar is then
# build/bindings/java/symm.jar.
#
# Usage: test.sh BUILD_DIR
#   BUILD_DIR  CMake's build of libsymm, with libsymm.a in it
set -euo pipefail
exec < /dev/null
if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi

library=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
output=$root/build/bindings/java
jar=$output/symm.jar
mkdir -p "$output"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

passed=0 failed=0
failures=()

# step NAME COMMAND...: one thing that passes or fails.
step() {
  local name=$1
  shift
  echo "== Java: $name"
  if "$@"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    failures+=("$name")
    return 1
  fi
}

# A repository of the binding's own: nobody else's has symm in it afterwards.
maven() { mvn -q -B -Dstyle.color=never -Dmaven.repo.local="$output/m2" "$@"; }

# The attribute of a report's first line: tests, failures, errors, skipped.
reported() { sed -n "s/^<testsuite .* $2=\"\([0-9]*\)\".*/\1/p;T;q" "$1"; }

unit_tests() {
  local reports=$output/maven/surefire-reports status=0 report tests bad skipped all=0
  rm -rf "$reports"
  (cd "$here" && maven -Dsymm.build="$library" -Dmaven.compiler.failOnWarning=true install) || status=$?
  shopt -s nullglob
  for report in "$reports"/TEST-*.xml; do
    tests=$(reported "$report" tests)
    skipped=$(reported "$report" skipped)
    bad=$(($(reported "$report" failures) + $(reported "$report" errors)))
    echo "$(basename "$report" .xml): $tests tests, $bad failed, $skipped skipped"
    # One needs 3 GiB of memory, and says so.
    [ "$skipped" = 0 ] || grep -A 1 '<skipped' "$report" | cut -c 1-300
    passed=$((passed + tests - bad - skipped)) failed=$((failed + bad)) all=$((all + tests))
    [ "$bad" = 0 ] || failures+=("$(basename "$report" .xml)")
  done
  [ "$all" != 0 ] && [ "$status" = 0 ]
}

# Only what the virtual machine looks up is exported, and nothing but the C library is needed.
symbols() {
  local file=$output/native/resources/symm/linux-$(uname -m)/libsymm_jni.so other
  other=$(nm -D --defined-only "$file" | awk '{print $NF}' |
    grep -v -e '^Java_dev_symm_' -e '^JNI_On') || true
  [ -z "$other" ] || { echo "libsymm_jni.so also exports: $other" >&2; return 1; }
  other=$(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -v -x -E 'lib(c|m|dl|pthread|rt)\.so\.[0-9]+|ld-linux-.*') || true
  [ -z "$other" ] || { echo "libsymm_jni.so also needs: $other" >&2; return 1; }
}

# That the machines' logs would show a complaint, if there were one.
complaint() {
  local jdk
  jdk=$(dirname "$(dirname "$(readlink -f "$(command -v javac)")")")
  mkdir "$scratch/logs"
  cat > "$scratch/Fault.java" << 'EOF'
public class Fault {
  static native void fault();
  public static void main(String[] arguments) {
    System.load(arguments[0]);
    fault();
  }
}
EOF
  # Goes on calling with an exception pending.
  cat > "$scratch/fault.c" << 'EOF'
#include <jni.h>
JNIEXPORT void JNICALL Java_Fault_fault(JNIEnv *env, jclass self) {
  (void)self;
  (*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/Error"), "pending");
  (*env)->NewByteArray(env, 1);
}
EOF
  gcc -shared -fPIC -I "$jdk/include" -I "$jdk/include/linux" "$scratch/fault.c" \
    -o "$scratch/libfault.so"
  javac -d "$scratch" "$scratch/Fault.java"
  java -Xcheck:jni -XX:+UnlockDiagnosticVMOptions -XX:+LogVMOutput \
    -XX:LogFile="$scratch/logs/%p.log" -cp "$scratch" Fault "$scratch/libfault.so" \
    > /dev/null 2>&1 || true
  if "$here/jni_warnings.sh" "$scratch/logs" > "$scratch/said" 2>&1; then return 1; fi
  grep -q -- '-Xcheck:jni complained' "$scratch/said"
}

javadoc() { (cd "$here" && maven -Dsymm.build="$library" javadoc:javadoc); }

# ranks SIZE COMMAND...: runs COMMAND ADDRESS RANK SIZE on every rank and compares what it prints.
ranks() {
  local size=$1 meeting rank status=0 pids=() pid
  shift
  meeting=file://$scratch/meeting.$RANDOM$RANDOM
  for ((rank = 0; rank < size; ++rank)); do
    timeout 120 "$@" "$meeting" "$rank" "$size" > "$scratch/rank.$rank" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  for ((rank = 0; rank < size; ++rank)); do
    python3 "$root/examples/languages/reference.py" "$size" | sed -n "$((rank + 1))p" |
      diff - "$scratch/rank.$rank" || status=1
  done
  return $status
}

example() {
  mkdir -p "$scratch/example"
  javac -Xlint:all -Werror -cp "$jar" -d "$scratch/example" \
    "$root/examples/languages/AllReduce.java" || return 1
  ranks 3 java -Xcheck:jni -cp "$jar:$scratch/example" AllReduce
}

example_fails() {
  local status=0
  java -cp "$jar:$scratch/example" AllReduce nowhere 0 2 > "$scratch/out" 2> "$scratch/err" ||
    status=$?
  [ $status = 1 ] && [ ! -s "$scratch/out" ] && [ "$(wc -l < "$scratch/err")" = 1 ] &&
    grep -q 'AllReduce: symm_comm_create: address "nowhere"' "$scratch/err"
}

# A project that knows the jar by its coordinates and nothing of this tree.
fresh_project() {
  local project=$scratch/project
  mkdir -p "$project/src/main/java"
  cp "$here/fresh/pom.xml" "$project"
  cp "$root/examples/languages/AllReduce.java" "$project/src/main/java"
  (cd "$project" && maven package) || return 1
  # Where Maven has put it, by its coordinates.
  ranks 2 java -cp "$(echo "$output"/m2/dev/symm/symm/*/symm-*.jar):$project/target/fresh-1.jar" \
    AllReduce
}

if ! "$root/scripts/install_dependencies.sh" build java; then
  echo "test.sh: SKIPPED: the Java binding is neither built nor tested on this machine" >&2
  echo "0 passed, 0 failed"
  exit 0
fi

if step "JUnit, JNI checked, jar" unit_tests; then
  cp "$output/maven/symm.jar" "$jar"
  echo "$library" > "$output/built_from"
  step "exported and needed symbols" symbols || true
  step "a complaint of -Xcheck:jni is seen" complaint || true
  step "javadoc without warnings" javadoc || true
  step "the example program" example || true
  step "the example program's error" example_fails || true
  step "a fresh Maven project" fresh_project || true
  step "the cost of a call" "$here/cost.sh" "$library" || true
fi

for name in "${failures[@]}"; do echo "failed: $name"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
