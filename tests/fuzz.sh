#!/usr/bin/env bash
# Runs one fuzz target for SYMM_FUZZ_SECONDS (60), from the seeds in fuzz/corpus/NAME where there
# are some. What breaks it is left beside the program, as PROGRAM-crash-...
#
# Usage: fuzz.sh PROGRAM
set -euo pipefail

program=$1
name=$(basename "$program" _fuzz)
seeds=$(cd "$(dirname "$0")" && pwd)/fuzz/corpus/$name
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
inputs=("$corpus")
if [ -d "$seeds" ]; then inputs+=("$seeds"); fi

"$program" -max_total_time="${SYMM_FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 \
  -print_final_stats=1 -verbosity=1 -artifact_prefix="$program-" "${inputs[@]}"
