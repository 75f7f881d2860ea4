#!/usr/bin/env bash
# Builds and tests the Python binding. Ends with one line, 'N passed, N failed'; fails if anything did.
#
# Usage: test.sh BUILD_DIR   see build.sh
# SYMM_TEST_TORCH=1 installs PyTorch for its tests (5 GB); the path of a Python that has it lends them that one.
set -euo pipefail
exec < /dev/null

[ $# = 1 ] && [ -d "$1" ] || {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}
library=$(cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
products=$root/build/bindings/python
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV LD_LIBRARY_PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1

passed=0 failed=0

# count PASSED FAILED
count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# step NAME COMMAND...: one thing that passes or fails.
step() {
  local name=$1
  shift
  echo "== Python: $name"
  if "$@"; then count 1 0; else
    echo "FAILED: $name"
    count 0 1
  fi
}

echo "== Python: building"
"$here/build.sh" "$library"

tools=$products/tools
if [ ! -e "$tools/ready" ] || [ "$here/tests/requirements.txt" -nt "$tools/ready" ] ||
  [ "$products/stamp" -nt "$tools/ready" ]; then
  rm -rf "$tools/ready"
  [ -x "$tools/bin/python" ] || "${PYTHON:-python3}" -m venv "$tools"
  "$tools/bin/python" -m pip install -q --upgrade pip
  "$tools/bin/python" -m pip install -q -r "$here/tests/requirements.txt"
  "$tools/bin/python" -m pip install -q --force-reinstall --no-deps "$products"/symm-*.whl
  touch "$tools/ready"
fi
if [ -n "${SYMM_TEST_TORCH:-}" ]; then
  "$root/scripts/lend_torch.sh" "$SYMM_TEST_TORCH" "$tools/bin/python"
fi

report=$products/pytest.xml
rm -f "$report"
echo "== Python: pytest"
status=0
(cd "$here/tests" && timeout 1800 "$tools/bin/python" -m pytest -q -rs -p no:cacheprovider -o junit_family=xunit2 \
  --junitxml="$report" .) || status=$?
# reported NAME: pytest's own count.
reported() { sed -n "s/.*<testsuite [^>]*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p;T;q" "$report" 2> /dev/null; }
total=$(reported tests)
bad=$(($(reported failures) + $(reported errors) + 0))
skipped=$(reported skipped)
if [ -z "$total" ] || { [ "$status" != 0 ] && [ "$bad" = 0 ]; }; then
  echo "FAILED: pytest ended with status $status"
  count 0 1
else
  count $((total - bad - skipped)) "$bad"
fi

check_types() {
  "$tools/bin/mypy" --config-file "$here/pyproject.toml" --cache-dir "$products/mypy" "$here/src/symm" &&
    (cd "$work" && "$tools/bin/mypy" --strict --cache-dir "$products/mypy" "$here/tests/typing_sample.py" &&
      "$tools/bin/pyright" --pythonpath "$tools/bin/python" "$here/tests/typing_sample.py" &&
      "$tools/bin/stubtest" symm --ignore-missing-stub --mypy-config-file "$here/pyproject.toml")
}

audit_abi() { "$tools/bin/abi3audit" --strict --report "$wheel"; }

# A wheel that auditwheel has no more to do for, but to name it; and it still holds one libsymm, and works.
audit_wheel() {
  PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$work/repaired" "$wheel" &&
    ls "$work/repaired" && compgen -G "$work/repaired/*manylinux_2*" > /dev/null &&
    [ "$("$tools/bin/python" -m zipfile -l "$work"/repaired/*.whl | grep -c '[.]so')" = 2 ] &&
    "$tools/bin/python" -m venv "$work/repaired-venv" &&
    "$work/repaired-venv/bin/python" -m pip install -q --no-index --find-links "$work/repaired" symm &&
    "$work/repaired-venv/bin/python" "$here/tests/no_numpy.py"
}

# fresh PYTHON: an environment that gets the wheel by its name alone; without NumPy, then with it.
fresh() {
  local venv=$work/fresh-$1
  "$1" -m venv "$venv" &&
    "$venv/bin/python" -m pip install -q --no-index --find-links "$products" symm &&
    (cd "$work" && timeout 120 "$venv/bin/python" "$here/tests/no_numpy.py") &&
    "$venv/bin/python" -m pip install -q numpy &&
    timeout 120 "$venv/bin/python" "$root/examples/languages/all_reduce.py" "file://$work/address-$1" 0 1
}

# All tests but those of time, on what is left of fresh().
tests_on() {
  local venv=$work/fresh-$1
  "$venv/bin/python" -m pip install -q pytest pytest-timeout hypothesis ml_dtypes &&
    (cd "$here/tests" && timeout 900 "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider --ignore cost_test.py .)
}

# The source distribution holds everything: its wheel, built where there is nothing else, libsymm included.
source_distribution() {
  local sources
  "$tools/bin/python" -m build -q --sdist --outdir "$work/sdist" "$here" || return 1
  sources=$(ls "$work/sdist"/symm-*.tar.gz)
  if tar tvzf "$sources" | grep '^[lh]'; then
    echo "the source distribution has links in it"
    return 1
  fi
  # Unpacked where the last one was, times and all, so that only what changed is compiled again.
  mkdir -p "$work/unpacked" "$products/source" &&
    tar xzf "$sources" -C "$work/unpacked" --strip-components 1 || return 1
  (cd "$products/source" && find . -type f) | while read -r file; do
    [ -e "$work/unpacked/$file" ] || rm "$products/source/$file"
  done
  (cd "$work/unpacked" && find . -type f) | while read -r file; do
    cmp -s "$work/unpacked/$file" "$products/source/$file" || {
      mkdir -p "$(dirname "$products/source/$file")"
      cp "$work/unpacked/$file" "$products/source/$file"
    }
  done
  "$tools/bin/python" -m pip wheel -q --no-deps -w "$work/source-wheel" -C build-dir="$products/source-build" \
    "$products/source" || return 1
  "$tools/bin/python" -m venv "$work/source-venv" &&
    "$work/source-venv/bin/python" -m pip install -q --no-index --find-links "$work/source-wheel" symm &&
    (cd "$work" && "$work/source-venv/bin/python" "$here/tests/no_numpy.py")
}

# Where there is no libsymm, or no sources, the build says so.
refusals() {
  local log=$work/refusal.log
  mkdir -p "$work/empty"
  if "$products/venv/bin/python" -m pip wheel -q --no-deps -w "$work/none" \
    -C cmake.define.SYMM_PREBUILT="$work/empty" "$here" > "$log" 2>&1; then
    echo "a wheel was built without libsymm"
    return 1
  fi
  grep "there is no libsymm.so.0 in it" "$log" || return 1
  cp -r "$here" "$work/alone"
  if "$products/venv/bin/python" -m pip wheel -q --no-deps -w "$work/none" "$work/alone" > "$log" 2>&1; then
    echo "a wheel was built without the library's sources"
    return 1
  fi
  grep "The sources of symm are not in" "$log"
}

wheel=$(ls "$products"/symm-*.whl)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step "types: mypy --strict, pyright, stubtest" check_types
step "abi3audit --strict" audit_abi
step "auditwheel" audit_wheel
step "a source distribution, built" source_distribution
step "builds that cannot be" refusals

# The oldest Python that the wheel is for, and the newest here.
shopt -s nullglob
interpreters=() seen=
for candidate in "$HOME"/.pyenv/versions/3.*/bin/python3.[0-9]* /usr/bin/python3.[0-9]* /usr/local/bin/python3.[0-9]*; do
  case $candidate in *config | *t) continue ;; esac
  version=$("$candidate" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
  [ "${version#3.}" -ge 10 ] || continue
  case " $seen " in *" $version "*) continue ;; esac
  seen="$seen $version"
  interpreters+=("$version $candidate")
done
mkdir -p "$work/interpreters"
for entry in "${interpreters[@]}"; do ln -s "${entry#* }" "$work/interpreters/python${entry%% *}"; done
case " $seen " in
  *" 3.10 "*) ;;
  *) echo "SKIPPED: there is no Python 3.10 here, the oldest that the wheel is for" ;;
esac
PATH="$work/interpreters:$PATH"
versions=()
[ -z "$seen" ] || mapfile -t versions < <(printf '%s\n' $seen | sort -t. -k2 -n)
for version in "${versions[@]}"; do
  step "a fresh environment of Python $version" fresh "python$version"
done
own=$("$tools/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in $(printf '%s\n' "${versions[@]:0:1}" "${versions[@]: -1}" | sort -u); do
  [ "$version" = "$own" ] || step "pytest on Python $version" tests_on "python$version"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
