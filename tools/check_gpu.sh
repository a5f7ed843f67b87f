#!/usr/bin/env bash
# Checks and measures a build on the GPU of this machine: op and training goldens, whole models, the op suite with its
# 16-bit cases, kernels and training tests, then the benchmarks. Prints one table and writes a JSON record.
# usage: check_gpu.sh BIN GOLDENS RECORD [WORKLOAD…]
set -uo pipefail
bin=$1 goldens=$2 record=$3
shift 3
workloads=("$@")
if ((${#workloads[@]} == 0)); then
  workloads=(matmul4096 matmul4096_weights matmul4096_f16 matmul4096_f16_weights tiny small small_mixed gpt2 gpt2_mixed
    llama_prefill llama_decode_f16)
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
checks=""

check() {  # NAME COMMAND…: runs it, keeps the last line that counts tests
  local name=$1 start=$SECONDS outcome
  shift
  "$@" >"$work/log" 2>&1
  local code=$?
  outcome=$(grep -E '[0-9]+ passed|PASSED|FAILED  \]' "$work/log" | tail -1 | tr -d '"\\')
  # Some drivers crash as the process ends, after every test has reported.
  if ((code != 0)) && ! { grep -q 'PASSED' "$work/log" && ! grep -q 'FAILED' "$work/log"; }; then
    ((failures++))
    tail -25 "$work/log"
  fi
  printf '%-28s exit %-3s %4s s  %s\n' "$name" "$code" "$((SECONDS - start))" "$outcome"
  checks+="${checks:+,}{\"name\":\"$name\",\"exit\":$code,\"outcome\":\"$outcome\"}"
}

check "op goldens" "$bin/jerboa" verify "$goldens/ops.safetensors" --device webgpu
for folder in "$goldens"/*/; do
  model=$(basename "$folder")
  case $model in moonshine | vit | whisper) continue ;; esac  # families that are not there yet
  check "$model" "$bin/jerboa" verify "$folder" --device webgpu
done
if [[ -x $bin/wgsl_test ]]; then check "kernels" "$bin/wgsl_test" --gtest_brief=1; fi
if [[ -x $bin/webgpu_test ]]; then
  check "op suite, 16 bits" "$bin/webgpu_test" --gtest_brief=1 \
    --gtest_filter='*WebGpuOp.EqualsTheReference/*:*SixteenBits/*:WebGpuTraining.*:*RandomGraph*'
fi
bench_code=0
"$bin/jerboa" bench --device webgpu "${workloads[@]}" --seconds "${BENCH_SECONDS:-1}" --json >"$work/bench.json" 2>"$work/bench.log" ||
  { bench_code=$?; ((failures++)); tail -5 "$work/bench.log"; }
cat "$work/bench.json"
[[ $bench_code == 0 ]] || echo '[]' >"$work/bench.json"
printf '{"date":"%s","devices":"%s","checks":[%s],"bench":%s}\n' "$(date -u +%FT%TZ)" \
  "$("$bin/jerboa" devices 2>/dev/null | grep -m1 -i webgpu | tr -d '"\\')" "$checks" "$(cat "$work/bench.json")" >"$record"
echo "$failures failures, record in $record"
((failures == 0))
