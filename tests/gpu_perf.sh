#!/usr/bin/env bash
# The performance tables: symm-perf on GPU ranks beside NCCL and PyTorch, and on CPU ranks beside
# Open MPI, from an existing build and with no network. Every result is checked; a table with a
# wrong one fails. Without a GPU only the CPU tables are made. About 8 minutes at most.
#
# Usage: tests/gpu_perf.sh BUILD_DIR OUT_DIR [NAME...]
#   OUT_DIR   gets NAME.txt (the table) and NAME.json of each
#   NAME      only these: beside window eager producer threads shared types cpu2 cpu4 cpu8 cpu16
set -uo pipefail
exec < /dev/null

if [ $# -lt 2 ]; then
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
build=$1 out=$2
shift 2
names="beside window eager producer threads shared types cpu2 cpu4 cpu8 cpu16"
for name in "$@"; do
  if [[ " $names " != *" $name "* ]]; then
    echo "gpu_perf.sh: '$name' is none of: $names" >&2
    exit 2
  fi
done
wanted=" $* "
perf=$build/examples/symm-perf
if [ ! -x "$perf" ]; then
  echo "gpu_perf.sh: $perf is not there: build the target symm-perf" >&2
  exit 2
fi
mkdir -p "$out"
# Nothing here is to use NVLink multicast, unless the caller says so.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0}
export TORCH_SYMM_MEM_DISABLE_MULTICAST=${TORCH_SYMM_MEM_DISABLE_MULTICAST:-1}

made=0 failures=() skipped=()

# table SECONDS NAME WHAT ARGUMENT...: one run of symm-perf, bounded in time.
table() {
  local seconds=$1 name=$2 what=$3 status=0 begin=$SECONDS
  shift 3
  if [ "$wanted" != "  " ] && [[ $wanted != *" $name "* ]]; then return; fi
  printf '\n== %s: %s\n' "$name" "$what"
  timeout -k 10 "$seconds" "$perf" "$@" --timeout $((seconds / 2)) --json="$out/$name.json" \
    2>&1 | tee "$out/$name.txt" || status=${PIPESTATUS[0]}
  if [ "$status" = 0 ]; then
    made=$((made + 1))
  else
    [ "$status" != 124 ] || echo "gpu_perf.sh: $name was not done in $seconds s" >&2
    failures+=("$name")
  fi
  echo "($((SECONDS - begin)) s)"
}

# gpu SECONDS NAME WHAT ARGUMENT...: the same of GPU ranks; skipped where there is no GPU.
gpu() {
  if [ -n "$no_gpu" ]; then
    if [ "$wanted" = "  " ] || [[ $wanted == *" $2 "* ]]; then skipped+=("$2"); fi
    return
  fi
  local seconds=$1 name=$2 what=$3
  shift 3
  table "$seconds" "$name" "$what" --device gpu "$@"
}

no_gpu=$(timeout 60 "$perf" --device gpu --form none --against nccl --min 8 --max 8 --batches 1 \
  2>&1 > /dev/null | sed -n 's/^symm-perf: \(no GPU: .*\)/\1/p')

gpu 200 beside "graphs, beside NCCL and PyTorch, 8 B to 256 MiB" \
  --dtype bfloat16,float32 --max 256M --against nccl,torch
gpu 60 window "graphs, the window form too" \
  --dtype bfloat16 --form all_reduce,window --min 1K --max 64M --against none
gpu 80 eager "eager calls, whole and host time, beside NCCL and PyTorch" \
  --dtype bfloat16,float32 --mode eager --max 16M --against nccl,torch
gpu 40 producer "graphs, behind a kernel that writes the input" \
  --dtype bfloat16 --form all_reduce,window --min 1K --max 64M --behind-producer --against none
gpu 40 threads "graphs, ranks as threads" \
  --dtype bfloat16 --min 1K --max 64M --threads --against none
gpu 40 shared "graphs, eight ranks as threads" \
  --dtype bfloat16 --ranks 8 --threads --min 8 --max 4M --against none
gpu 60 types "every element type and operation, in place" \
  --dtype int8,uint8,int32,uint32,int64,uint64,float16,float32,float64,bfloat16,float8_e4m3,float8_e5m2 \
  --op sum,prod,max,min,avg --in-place --quick --min 8K --max 128K --against none
for ranks in 2 4 8 16; do
  table 60 "cpu$ranks" "$ranks CPU ranks beside Open MPI" --ranks "$ranks" --max 16M
done

echo
for name in "${skipped[@]}"; do echo "skipped: $name: $no_gpu"; done
for name in "${failures[@]}"; do echo "failed: $name"; done
echo "$made tables made, ${#failures[@]} failed, ${#skipped[@]} skipped"
[ ${#failures[@]} = 0 ]
