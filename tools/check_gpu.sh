#!/usr/bin/env bash
# Checks and measures a build on the GPU of this machine: op and training goldens, whole models, the op suite with its
# 16-bit cases, kernels, texts and training tests, then the benchmarks: workloads, language models, and 64 texts at once;
# and whether a token in one dispatch is the one that separate dispatches compute.
# Prints one table and writes a JSON record. A missing program fails, and so does a check that runs no test.
# usage: check_gpu.sh BIN GOLDENS RECORD [WORKLOAD…]
# BENCH_SECONDS: per workload, 1 by default; LLM_MODELS, LLM_WEIGHTS: for `bench llm`; PERSISTENT_MODEL: the model whose
# tokens are compared; SOFTWARE=1: accept a software driver
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

plain() { tr -d '"\\\n'; }  # for a JSON string

# The first adapter that is not a software driver, whose checks and times would say nothing about a GPU.
adapters=$("$bin/jerboa" devices | grep '^webgpu .*(.*, .*)')
adapter=$(grep -v '(CPU, ' <<<"$adapters" | head -1)
if [[ ! $adapter && ${SOFTWARE:-} == 1 ]]; then adapter=$(head -1 <<<"$adapters"); fi
if [[ ! $adapter ]]; then
  echo "this machine has no GPU: ${adapters:-no adapter} (SOFTWARE=1 accepts software drivers)" >&2
  exit 1
fi
echo "$adapter"

check() {  # NAME PROGRAM ARGUMENT…: runs it, keeps the last line that counts tests
  local name=$1 start=$SECONDS outcome code=127
  shift
  if [[ -x $1 ]]; then
    "$@" >"$work/log" 2>&1
    code=$?
  else
    echo "there is no $1" >"$work/log"
  fi
  outcome=$(grep -E '[0-9]+ passed|PASSED|FAILED  \]' "$work/log" | tail -1 | plain)
  # Some drivers crash at process exit, after every test has reported.
  if ! [[ $outcome =~ [1-9][0-9]*\ (passed|test) ]] ||
    { ((code != 0)) && ! { grep -q 'PASSED' "$work/log" && ! grep -q 'FAILED' "$work/log"; }; }; then
    ((failures++))
    tail -25 "$work/log"
    outcome="failed: ${outcome:-no test was run}"
  fi
  printf '%-28s exit %-3s %4s s  %s\n' "$name" "$code" "$((SECONDS - start))" "$outcome"
  checks+="${checks:+,}{\"name\":\"$name\",\"exit\":$code,\"outcome\":\"$outcome\"}"
}

check "op goldens" "$bin/jerboa" verify "$goldens/ops.safetensors" --device webgpu
for folder in "$goldens"/*/; do
  model=$(basename "$folder")
  case $model in moonshine | vit | whisper) continue ;; esac  # families that are not supported yet
  check "$model" "$bin/jerboa" verify "$folder" --device webgpu
done
check "kernels" "$bin/wgsl_test" --gtest_brief=1
check "op suite, 16 bits" "$bin/webgpu_test" --gtest_brief=1 \
  --gtest_filter='*WebGpuOp.EqualsTheReference/*:*SixteenBits/*:WebGpuTraining.*:*MixedTrainGoldens*:*RandomGraph*'
check "texts" "$bin/language_test" --gtest_brief=1 --gtest_filter='*WebGpu*:*SamplingGraph*'

if ! "$bin/jerboa" bench --device webgpu "${workloads[@]}" --seconds "${BENCH_SECONDS:-1}" --json >"$work/bench.json" \
  2>"$work/bench.log"; then
  ((failures++))
  tail -5 "$work/bench.log"
  echo '[]' >"$work/bench.json"
fi
cat "$work/bench.json"

# Each model and type of weights runs separately: one that the device has no room for must not affect the others.
llm=""
measure_llm() {  # MODEL WEIGHTS
  local reason
  if "$bin/jerboa" bench llm --device webgpu --precision mixed --cache f16 --model "$1" --weights "$2" --tokens 128 \
    --turns 3 --json >"$work/llm.json" 2>"$work/llm.log"; then
    sed -i '1s/^\[//; $s/\]$//' "$work/llm.json"
  else
    reason=$(tail -1 "$work/llm.log" | plain)
    if ! grep -qE 'out of memory|allows buffers of|too many for the device|not enough host memory' <<<"$reason"; then
      ((failures++))
      tail -5 "$work/llm.log"
    fi
    printf '{"model":"%s","weights":"%s","skipped":"%s"}\n' "$1" "$2" "$reason" >"$work/llm.json"
  fi
  cat "$work/llm.json"
  llm+="${llm:+,}$(cat "$work/llm.json")"
}
read -ra models <<<"${LLM_MODELS:-qwen3-0.6b llama-1b llama-8b qwen3.5-0.8b llama-0.8b mamba2-130m llama-130m}"
read -ra weights <<<"${LLM_WEIGHTS:-f16 int8 int4}"
for model in "${models[@]}"; do
  for type in "${weights[@]}"; do measure_llm "$model" "$type"; done
done

# A token in one dispatch (JERBOA_PERSISTENT=1) must be the one that separate dispatches compute. Later tokens may differ
# by rounding, so only the first ones decide; where a device keeps separate dispatches, that is all there is to say.
compare_persistent() {  # MODEL
  local outcome code=0 form equal=0 separate whole dispatches
  for form in "" 1; do
    JERBOA_PERSISTENT=$form "$bin/jerboa" bench llm --device webgpu --cache f16 --model "$1" --weights f16 --prompt 64 \
      --tokens 64 --turns 1 --json >"$work/tokens$form.json" 2>"$work/tokens$form.log" || code=$?
  done
  read -ra separate < <(sed -n 's/.*"tokens": "\(.*\)".*/\1/p' "$work/tokens.json")
  read -ra whole < <(sed -n 's/.*"tokens": "\(.*\)".*/\1/p' "$work/tokens1.json")
  dispatches=$(sed -n 's/.*"decode_dispatches": \([0-9]*\).*/\1/p' "$work/tokens1.json")
  while ((equal < ${#whole[@]})) && [[ ${whole[equal]} == "${separate[equal]:-}" ]]; do ((++equal)); done
  if ((code != 0)); then
    outcome=$(cat "$work"/tokens*.log | tail -1 | plain)
  elif [[ $dispatches != 1 ]]; then
    outcome="not compared: a token stays ${dispatches:-?} dispatches"
  else
    outcome="the first $equal of ${#whole[@]} tokens are equal"
    if ((equal < 16)); then code=1; fi
  fi
  if ((code != 0)); then
    ((++failures))
    outcome="failed: $outcome"
  fi
  printf '%-28s exit %-3s %s\n' "tokens in one dispatch" "$code" "$outcome"
  checks+=",{\"name\":\"tokens in one dispatch\",\"exit\":$code,\"outcome\":\"$outcome\"}"
}
compare_persistent "${PERSISTENT_MODEL:-qwen3-0.6b}"

mkdir "$work/llama"
cat >"$work/llama/config.json" <<'CONFIG'
{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
 "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "hidden_act": "silu",
 "rms_norm_eps": 1e-5, "rope_theta": 500000, "max_position_embeddings": 131072, "tie_word_embeddings": true}
CONFIG
"$bin/serving_bench" "$work/llama" --random --device webgpu --sequences 1 64 --prompt 128 --tokens 256 \
  >"$work/serving.log" 2>&1 || ((failures++))
cat "$work/serving.log"
serving=$(tr -d '"\\' <"$work/serving.log" | tr '\t' ' ' | awk '{printf "%s\"%s\"", (NR > 1 ? "," : ""), $0}')

printf '{"date":"%s","devices":"%s","checks":[%s],"bench":%s,"llm":[%s],"serving":[%s]}\n' "$(date -u +%FT%TZ)" \
  "$(plain <<<"$adapter")" "$checks" "$(cat "$work/bench.json")" "$llm" "$serving" >"$record"
echo "$failures failures, record in $record"
((failures == 0))
