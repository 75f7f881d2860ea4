#!/usr/bin/env bash
# The C program of README.md, the first that stands there, so that what is tested is what is read.
#
# Usage: readme_program.sh README
set -euo pipefail
awk '/^```c$/ {inside = 1; next} inside && /^```$/ {exit} inside' "$1" | grep . ||
  { echo "readme_program.sh: no C program in $1" >&2; exit 1; }
