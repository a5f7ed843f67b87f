#!/usr/bin/env bash
# Checks and measures a build on the GPU of this machine: op and training goldens, whole models, the op suite with its
# 16-bit cases, kernels, texts and training tests, then the benchmarks: workloads, language models, and 64 texts at once
# where serving_bench was built. Prints one table and writes a JSON record.
# usage: check_gpu.sh BIN GOLDENS RECORD [WORKLOAD…]
# BENCH_SECONDS: of each workload, 1 by default; LLM_MODELS, LLM_WEIGHTS: of `bench llm`
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
if [[ -x $bin/language_test ]]; then
  check "texts" "$bin/language_test" --gtest_brief=1 --gtest_filter='*WebGpu*:*SamplingGraph*'
fi

measure() {  # FILE ARGUMENT…: what `jerboa bench` measures, as JSON; an empty list if it fails
  local file=$1
  shift
  "$bin/jerboa" bench "$@" --json >"$file" 2>"$work/bench.log" ||
    { ((failures++)); tail -5 "$work/bench.log"; echo '[]' >"$file"; }
  cat "$file"
}
measure "$work/bench.json" --device webgpu "${workloads[@]}" --seconds "${BENCH_SECONDS:-1}"
read -ra models <<<"${LLM_MODELS:-qwen3-0.6b llama-1b llama-8b qwen3.5-0.8b llama-0.8b mamba2-130m llama-130m}"
read -ra weights <<<"${LLM_WEIGHTS:-f16 int8 int4}"
measure "$work/llm.json" llm --device webgpu --precision mixed --cache f16 --model "${models[@]}" \
  --weights "${weights[@]}" --tokens 128 --turns 3

serving=""
if [[ -x $bin/serving_bench ]]; then
  mkdir "$work/llama"
  cat >"$work/llama/config.json" <<'CONFIG'
{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
 "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 500000, "max_position_embeddings": 131072, "tie_word_embeddings": true}
CONFIG
  "$bin/serving_bench" "$work/llama" --random --device webgpu --sequences 1 64 --prompt 128 --tokens 256 \
    >"$work/serving.log" 2>&1 || ((failures++))
  cat "$work/serving.log"
  serving=$(tr -d '"\\' <"$work/serving.log" | tr '\t' ' ' | awk '{printf "%s\"%s\"", NR > 1 ? "," : "", $0}')
fi
printf '{"date":"%s","devices":"%s","checks":[%s],"bench":%s,"llm":%s,"serving":[%s]}\n' "$(date -u +%FT%TZ)" \
  "$("$bin/jerboa" devices 2>/dev/null | grep -m1 -i webgpu | tr -d '"\\')" "$checks" "$(cat "$work/bench.json")" \
  "$(cat "$work/llm.json")" "$serving" >"$record"
echo "$failures failures, record in $record"
((failures == 0))
