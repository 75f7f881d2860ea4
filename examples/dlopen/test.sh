#!/usr/bin/env bash
# Tests the programs of this folder, and loading and unloading as such, against an installed build
# of symm. Ends with the line 'N passed, N failed'; fails if anything did.
#
# Usage: examples/dlopen/test.sh BUILD_DIR
set -euo pipefail
exec < /dev/null

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
out=$root/build/dlopen
"$here/build.sh" "$@"

passed=0 failed=0
# What the tests are run with must come from the build, not from the user's own settings.
unset LD_LIBRARY_PATH SYMM_LIBRARY SYMM_DECLARATIONS SYMM_TEST_FACTS SYMM_TEST_PEER

cc -std=c99 -Wall -Wextra -Wpedantic -Werror -O1 -g -I"$(dirname "$(cat "$out/header.txt")")" \
  "$root/tests/dlopen/unload.c" -pthread -ldl -o "$out/unload"

for tests in clients facts unload; do
  log=$out/$tests.log status=0
  printf '\n== %s\n' "$tests"
  timeout 900 python3 "$root/tests/dlopen/${tests}_test.py" 2>&1 | tee "$log" || status=1
  if last=$(tail -n 1 "$log") && [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    [ "$status" = 0 ] || [ "${BASH_REMATCH[2]}" != 0 ] || failed=$((failed + 1))
  else
    echo "test.sh: ${tests}_test.py broke off"
    failed=$((failed + 1))
  fi
done

if [ -x "$out/go_test" ]; then
  printf '\n== go\n'
  status=0
  SYMM_LIBRARY=$out/libsymm.so.0 SYMM_TEST_FACTS=$out/go_facts.json timeout 300 \
    "$out/go_test" -test.v -test.timeout 240s 2>&1 | tee "$out/go_test.log" || status=1
  bad=$(grep -c '^--- FAIL' "$out/go_test.log") || true
  if [ "$status" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  passed=$((passed + $(grep -c '^--- PASS' "$out/go_test.log" || true))) failed=$((failed + bad))
fi

echo
if [ -s "$out/skipped.txt" ]; then
  echo "NOT TESTED, as there is no such runtime here: $(paste -sd, "$out/skipped.txt")"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
