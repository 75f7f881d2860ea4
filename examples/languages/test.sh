#!/usr/bin/env bash
# Tests the mixed run: both line-ups, and that it finds out ranks that are wrong. Ends with the line
# 'N passed, N failed'; fails if anything did.
#
# Usage: examples/languages/test.sh BUILD_DIR
set -euo pipefail
exec < /dev/null

if [ $# != 1 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
unset LD_LIBRARY_PATH SYMM_LIBRARY SYMM_DECLARATIONS

passed=0 failed=0
for line_up in packages dlopen; do
  printf '\n== mixed run: %s\n' "$line_up"
  if timeout 3600 "$here/mixed.sh" "$1" "$line_up"; then passed=$((passed + 1)); else
    echo "FAILED: mixed run: $line_up"
    failed=$((failed + 1))
  fi
done

printf '\n== mixed.py and reference.py\n'
log=$root/build/languages/mixed_test.log status=0
timeout 600 python3 "$root/tests/dlopen/mixed_test.py" 2>&1 | tee "$log" || status=1
if last=$(tail -n 1 "$log") && [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
  passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  [ "$status" = 0 ] || [ "${BASH_REMATCH[2]}" != 0 ] || failed=$((failed + 1))
else
  echo "test.sh: mixed_test.py broke off"
  failed=$((failed + 1))
fi

echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
