#!/usr/bin/env bash
# What check_gpu.sh says of builds whose programs are stand-ins.
# usage: check_gpu_test.sh CHECK_GPU
set -uo pipefail
check_gpu=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
mkdir -p "$bin" "$work/goldens/llama"
failed=0

program() {  # NAME BODY
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}
# A GPU on which everything passes, but which has no room for one model.
make_programs() {
  program jerboa 'case "$*" in
    devices) echo "cpu     2 threads"; echo "webgpu  ${GPU:-A GPU (DiscreteGPU, a driver 1.0)}" ;;
    verify*) echo "2 passed, 0 failed" ;;
    *large*) echo "jerboa: A GPU is out of memory allocating \"lm_head\"" >&2; exit 1 ;;
    *broken*) echo "jerboa: no such kernel" >&2; exit 1 ;;
    "bench llm"*)
      case "${JERBOA_PERSISTENT:-}" in
        1) dispatches=${DISPATCHES:-1} tokens=${TOKENS:-"$(seq -s " " 20)"} ;;
        *) dispatches=170 tokens=$(seq -s " " 20) ;;
      esac
      printf "[\n {\n  \"decode_dispatches\": $dispatches,\n  \"tokens\": \"$tokens\",\n"
      printf "  \"model\": \"small\"\n }\n]\n" ;;
    *) printf "[\n {\n  \"work\": \"tiny\"\n }\n]\n" ;;
  esac'
  local name
  for name in wgsl_test webgpu_test language_test; do program $name 'echo "[  PASSED  ] 3 tests."'; done
  program serving_bench 'echo "64 texts"'
}

expect() {  # passes|fails WHAT TEXT: of a run, whose output must contain the text
  local wanted=$1 what=$2 text=$3 outcome=passes
  LLM_MODELS=${LLM_MODELS:-small} LLM_WEIGHTS=f16 "$check_gpu" "$bin" "$work/goldens" "$work/record.json" tiny \
    >"$work/log" 2>&1 || outcome=fails
  if [[ $outcome != "$wanted" ]] || ! grep -qF -- "$text" "$work/log"; then
    echo "$what: it $outcome, without \"$text\" or not as it should:"
    cat "$work/log"
    failed=1
  fi
  make_programs
}

make_programs
expect passes "all of it" "0 failures"
for part in '"model": "small"' '"serving":["64 texts"]'; do
  grep -qF -- "$part" "$work/record.json" || { echo "the record lacks $part"; failed=1; }
done
for name in wgsl_test webgpu_test language_test; do
  rm "$bin/$name"
  expect fails "without $name" "there is no $bin/$name"
done
rm "$bin/serving_bench"
expect fails "without serving_bench" "1 failures"
program wgsl_test 'echo "[  PASSED  ] 0 tests."'
expect fails "a filter that matches nothing" "failed: [  PASSED  ] 0 tests."
program webgpu_test 'echo "[  FAILED  ] 1 test."; exit 1'
expect fails "a test that fails" "1 failures"
program webgpu_test 'echo "[  PASSED  ] 3 tests."; exit 139'
expect passes "a driver that crashes in the end" "0 failures"
LLM_MODELS="large small" expect passes "a model that is too large" '"skipped":"jerboa: A GPU is out of memory'
grep -qF '"model": "small"' "$work/record.json" || { echo "the other model is not in the record"; failed=1; }
LLM_MODELS="broken small" expect fails "a model that does not run" "1 failures"
expect passes "one dispatch" "the first 20 of 20 tokens are equal"
grep -qF '"name":"tokens in one dispatch","exit":0' "$work/record.json" || { echo "the tokens are not in the record"; failed=1; }
TOKENS="$(seq -s " " 17) 3 3 3" expect passes "one dispatch with other roundings" "the first 17 of 20 tokens are equal"
TOKENS="1 2 3 5 5" expect fails "one dispatch with other tokens" "failed: the first 3 of 5 tokens are equal"
TOKENS=" " expect fails "one dispatch without tokens" "failed: the first 0 of 0 tokens are equal"
DISPATCHES=170 expect passes "a device that keeps dispatches" "not compared: a token stays 170 dispatches"
PERSISTENT_MODEL=broken expect fails "one dispatch that fails" "failed: jerboa: no such kernel"
export GPU="llvmpipe (LLVM 15.0.6, 128 bits) (CPU, llvmpipe: Mesa)"
expect fails "a software driver" "this machine has no GPU"
SOFTWARE=1 expect passes "a software driver that was asked for" "0 failures"
exit $failed
