#include "backend/cpu/whole_kernel.h"

#include <algorithm>
#include <limits>

#include <jerboa/ir/packed_cache.h>
#include <jerboa/ir/shapes.h>

#include "backend/cpu/attention.h"
#include "backend/cpu/causal_conv.h"
#include "backend/cpu/compact_weights.h"
#include "backend/cpu/convolution.h"
#include "backend/cpu/grouped_matmul.h"
#include "backend/cpu/linear_attention.h"
#include "backend/cpu/pack.h"
#include "backend/cpu/pooling.h"
#include "backend/cpu/scan.h"
#include "backend/cpu/scatter.h"
#include "backend/cpu/sort.h"
#include "backend/cpu/sum_squares.h"
#include "ir/op_functions.h"
#include "lower/axes.h"

namespace jerboa::cpu {
namespace {

bool is_row_major(const BoundTensor& tensor) { return detail::is_row_major(tensor.sizes, tensor.strides); }

bool is_wide(const BoundTensor& tensor) { return bits(tensor.dtype) == 32; }

float* floats(const BoundTensor& tensor) { return reinterpret_cast<float*>(tensor.data) + tensor.offset; }

}  // namespace

float* WholeCall::copy(std::vector<float>&& values) {
  copies_.push_back(std::move(values));
  return copies_.back().data();
}

const float* WholeCall::contiguous(std::size_t i) {
  if (i >= operands_.size() || !operands_[i].present()) return nullptr;
  const BoundTensor& tensor = operands_[i];
  if (is_wide(tensor) && is_row_major(tensor)) return floats(tensor);
  std::vector<float> values(static_cast<std::size_t>(element_count(tensor.sizes)) + 1);
  pack_f32(tensor.data, tensor.dtype, tensor.offset, tensor.sizes, tensor.strides, values.data());
  return copy(std::move(values));
}

float* WholeCall::contiguous_result(std::size_t i) {
  const BoundTensor& tensor = results_[i];
  if (is_wide(tensor) && is_row_major(tensor)) return floats(tensor);
  float* values = copy(std::vector<float>(static_cast<std::size_t>(element_count(tensor.sizes)) + 1));
  pending_.push_back({i, values});
  return values;
}

const float* WholeCall::with_strides(std::size_t i, std::vector<std::int64_t>& strides) {
  const BoundTensor& tensor = operands_[i];
  if (is_wide(tensor) && (tensor.strides.back() == 1 || tensor.sizes.back() == 1)) {
    strides = tensor.strides;
    return floats(tensor);
  }
  strides = strides_of(tensor.sizes);
  return contiguous(i);
}

float* WholeCall::result_with_strides(std::size_t i, std::vector<std::int64_t>& strides) {
  const BoundTensor& tensor = results_[i];
  if (tensor.dtype == DType::f32 && (tensor.strides.back() == 1 || tensor.sizes.back() == 1)) {
    strides = tensor.strides;
    return floats(tensor);
  }
  strides = strides_of(tensor.sizes);
  return contiguous_result(i);
}

const std::uint32_t* WholeCall::words_with_strides(std::size_t i, std::vector<std::int64_t>& strides) {
  if (operands_[i].dtype != packed_cache) return nullptr;
  return reinterpret_cast<const std::uint32_t*>(with_strides(i, strides));
}

const std::uint16_t* WholeCall::halves_with_strides(std::size_t i, std::vector<std::int64_t>& strides) const {
  const BoundTensor& tensor = operands_[i];
  if (tensor.dtype != DType::f16 || (tensor.strides.back() != 1 && tensor.sizes.back() != 1)) return nullptr;
  strides = tensor.strides;
  return reinterpret_cast<const std::uint16_t*>(tensor.data) + tensor.offset;
}

void WholeCall::finish() {
  for (const Pending& pending : pending_) {
    const BoundTensor& tensor = results_[pending.result];
    unpack_f32(pending.values, tensor.data, tensor.dtype, tensor.offset, tensor.sizes, tensor.strides);
  }
}

namespace {

// One specialisation for each op that works on whole tensors; a missing one is a compile error that names it.
template <Op op>
void run_whole(WholeCall& call) = delete;

// Attention

AttentionInputs::Strides three(const std::vector<std::int64_t>& strides) {
  return {strides[0], strides[1], strides[2]};
}

// Fills in everything but k and v.
template <class A>
void fill_attention(AttentionInputs& problem, WholeCall& call, const A& attrs, std::size_t mask) {
  const BoundTensor &q = call.operand(0), &k = call.operand(1), &v = call.operand(2);
  problem.batch = q.size(0);
  problem.heads = q.size(1);
  problem.key_heads = k.size(1);
  problem.time = q.size(2);
  problem.keys = k.size(2);
  problem.size = q.size(3);
  problem.value_size = v.size(3);
  std::vector<std::int64_t> strides;
  problem.q = call.with_strides(0, strides);
  problem.q_strides = three(strides);
  if (const BoundTensor& tensor = call.operand(mask); tensor.present()) {
    const float* values = call.contiguous(mask);
    const auto mask_strides = strides_of(tensor.sizes);
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i)
      problem.mask_strides[4 - tensor.sizes.size() + i] = tensor.sizes[i] == 1 ? 0 : mask_strides[i];
    if (tensor.dtype == DType::boolean)
      problem.mask_bool = reinterpret_cast<const std::uint32_t*>(values);
    else
      problem.mask_float = values;
    problem.mask_hidden = static_cast<float>(hidden_key(tensor.dtype));
  }
  problem.sinks = call.contiguous(mask + 1);
  problem.lengths = call.contiguous_integers(mask + 2);
  problem.positions = call.contiguous_integers(mask + 3);
  problem.position_strides = {problem.time, 1};
  problem.scale = static_cast<float>(attrs.scale);
  problem.causal = attrs.causal;
  problem.window = attrs.window;
  problem.soft_cap = static_cast<float>(attrs.soft_cap);
  problem.ring = attrs.ring;
}

template <>
void run_whole<Op::attention>(WholeCall& call) {
  AttentionProblem problem;
  fill_attention(problem, call, call.as<AttentionAttrs>(), 3);
  problem.value_size = call.result(0).size(3);
  // Caches of f16 or 8 bits are widened tile by tile: most of a large one may not be read at all.
  std::vector<std::int64_t> strides, v_strides;
  problem.k_packed = call.words_with_strides(1, strides);
  problem.v_packed = call.words_with_strides(2, v_strides);
  problem.k_half = call.halves_with_strides(1, strides);
  problem.v_half = call.halves_with_strides(2, v_strides);
  if (problem.k_half == nullptr || problem.v_half == nullptr) problem.k_half = problem.v_half = nullptr;
  if (problem.k_packed == nullptr && problem.k_half == nullptr) {
    problem.k = call.with_strides(1, strides);
    problem.v = call.with_strides(2, v_strides);
  }
  problem.k_strides = three(strides);
  problem.v_strides = three(v_strides);
  if (call.operand(7).present()) {
    problem.table = call.contiguous_integers(7);
    problem.blocks = call.operand(1).size(0);
    problem.block = call.operand(1).size(2);
    problem.keys = call.operand(7).size(1) * problem.block;
  }
  problem.out = call.result_with_strides(0, strides);
  problem.out_strides = three(strides);
  problem.lse = call.contiguous_result(1);
  run_attention(problem, call.pool());
}

template <>
void run_whole<Op::attention_grad>(WholeCall& call) {
  AttentionGradProblem problem;
  const auto& attrs = call.as<AttentionGradAttrs>();
  fill_attention(problem, call, attrs, 6);
  std::vector<std::int64_t> strides;
  problem.k = call.with_strides(1, strides);
  problem.k_strides = three(strides);
  problem.v = call.with_strides(2, strides);
  problem.v_strides = three(strides);
  problem.out = call.with_strides(3, strides);
  problem.out_strides = three(strides);
  problem.lse = call.contiguous(4);
  problem.dout = call.with_strides(5, strides);
  problem.dout_strides = three(strides);
  problem.dq = call.result_with_strides(0, strides);
  problem.dq_strides = three(strides);
  problem.dk = call.result_with_strides(1, strides);
  problem.dk_strides = three(strides);
  problem.dv = call.result_with_strides(2, strides);
  problem.dv_strides = three(strides);
  std::size_t next = 3;
  if (problem.sinks != nullptr) problem.dsinks = call.contiguous_result(next++);
  if (attrs.mask_grad) {
    problem.dmask = call.contiguous_result(next);
    problem.dmask_strides = problem.mask_strides;
  }
  run_attention_grad(problem, call.pool());
}

// Recurrences

RecurrentTokens recurrent_tokens(WholeCall& call, const BoundTensor& x, std::size_t positions, bool with_slots) {
  RecurrentTokens tokens;
  tokens.batch = x.size(0);
  tokens.time = x.size(1);
  tokens.positions = call.contiguous_integers(positions);
  if (call.operand(0).present()) tokens.rows = call.operand(0).size(0);
  if (with_slots) tokens.slots = call.contiguous_integers(positions + 1);
  return tokens;
}

template <>
void run_whole<Op::causal_conv1d>(WholeCall& call) {
  const BoundTensor &x = call.operand(1), &weight = call.operand(2);
  CausalConvProblem problem;
  problem.tokens = recurrent_tokens(call, x, 3, true);
  problem.channels = weight.size(0);
  problem.taps = weight.size(1);
  problem.state = call.contiguous(0);
  std::vector<std::int64_t> strides;
  problem.x = call.with_strides(1, strides);
  problem.x_strides = {strides[0], strides[1]};
  problem.weight = call.contiguous(2);
  problem.next = call.contiguous_result(0);
  problem.y = call.contiguous_result(1);
  run_causal_conv1d(problem, call.pool());
}

void fill_linear_attention(LinearAttentionInputs& problem, WholeCall& call, bool with_slots) {
  const BoundTensor &k = call.operand(2), &v = call.operand(3);
  problem.tokens = recurrent_tokens(call, v, 6, with_slots);
  problem.heads = v.size(2);
  problem.groups = k.size(2);
  problem.key_size = k.size(3);
  problem.value_size = v.size(3);
  problem.state = call.contiguous(0);
  std::vector<std::int64_t> strides;
  problem.q = call.with_strides(1, strides);
  problem.q_strides = three(strides);
  problem.k = call.with_strides(2, strides);
  problem.k_strides = three(strides);
  problem.v = call.with_strides(3, strides);
  problem.v_strides = three(strides);
  problem.log_decay = call.contiguous(4);
  problem.beta = call.contiguous(5);
}

template <>
void run_whole<Op::linear_attention>(WholeCall& call) {
  LinearAttentionProblem problem;
  fill_linear_attention(problem, call, true);
  problem.next = call.contiguous_result(0);
  problem.y = call.contiguous_result(1);
  run_linear_attention(problem, call.pool());
}

template <>
void run_whole<Op::linear_attention_grad>(WholeCall& call) {
  LinearAttentionGradProblem problem;
  fill_linear_attention(problem, call, false);
  problem.dnext = call.contiguous(7);
  problem.dy = call.contiguous(8);
  problem.dq = call.contiguous_result(0);
  problem.dk = call.contiguous_result(1);
  problem.dv = call.contiguous_result(2);
  problem.dlog_decay = call.contiguous_result(3);
  // Tensors without elements have no memory, but their gradients still have a place in the list.
  const std::size_t last = call.results() - 1;
  if (problem.beta != nullptr) problem.dbeta = call.contiguous_result(4);
  if (problem.state != nullptr) problem.dstate = call.contiguous_result(last);
  run_linear_attention_grad(problem, call.pool());
}

// Convolution and pooling

std::array<std::int64_t, 2> pair(const std::vector<int>& values) { return {values[0], values[1]}; }

template <class A>
Convolution convolution(const A& attrs, const Sizes& x, const Sizes& weight, const Sizes& y) {
  Convolution conv;
  conv.batch = x[0];
  conv.channels = x[1];
  conv.out_channels = weight[0];
  conv.in = {x[2], x[3]};
  conv.out = {y[2], y[3]};
  conv.kernel = {weight[2], weight[3]};
  conv.stride = pair(attrs.stride);
  conv.padding = pair(attrs.padding);
  conv.dilation = pair(attrs.dilation);
  conv.groups = attrs.groups;
  return conv;
}

template <>
void run_whole<Op::conv2d>(WholeCall& call) {
  const auto conv =
      convolution(call.as<Conv2dAttrs>(), call.operand(0).sizes, call.operand(1).sizes, call.result(0).sizes);
  run_conv2d(conv, call.contiguous(0), call.contiguous(1), call.contiguous(2), call.contiguous_result(0), call.pool());
}
template <>
void run_whole<Op::conv2d_input_grad>(WholeCall& call) {
  const auto conv =
      convolution(call.as<Conv2dGradAttrs>(), call.result(0).sizes, call.operand(1).sizes, call.operand(0).sizes);
  run_conv2d_input_grad(conv, call.contiguous(0), call.contiguous(1), call.contiguous_result(0), call.pool());
}
template <>
void run_whole<Op::conv2d_weight_grad>(WholeCall& call) {
  const auto conv =
      convolution(call.as<Conv2dGradAttrs>(), call.operand(0).sizes, call.result(0).sizes, call.operand(1).sizes);
  run_conv2d_weight_grad(conv, call.contiguous(0), call.contiguous(1), call.contiguous_result(0), call.pool());
}

template <class A>
Pooling pooling(const A& attrs, const Sizes& x, const Sizes& y) {
  return {x[0] * x[1], {x[2], x[3]}, {y[2], y[3]}, pair(attrs.kernel), pair(attrs.stride), pair(attrs.padding)};
}
template <>
void run_whole<Op::max_pool2d>(WholeCall& call) {
  run_max_pool2d(pooling(call.as<PoolAttrs>(), call.operand(0).sizes, call.result(0).sizes), call.contiguous(0),
                 call.contiguous_result(0), call.pool());
}
template <>
void run_whole<Op::max_pool2d_grad>(WholeCall& call) {
  run_max_pool2d_grad(pooling(call.as<PoolGradAttrs>(), call.operand(0).sizes, call.operand(1).sizes),
                      call.contiguous(0), call.contiguous(1), call.contiguous_result(0), call.pool());
}
template <>
void run_whole<Op::avg_pool2d>(WholeCall& call) {
  run_avg_pool2d(pooling(call.as<PoolAttrs>(), call.operand(0).sizes, call.result(0).sizes), call.contiguous(0),
                 call.contiguous_result(0), call.pool());
}
template <>
void run_whole<Op::avg_pool2d_grad>(WholeCall& call) {
  run_avg_pool2d_grad(pooling(call.as<PoolGradAttrs>(), call.result(0).sizes, call.operand(0).sizes),
                      call.contiguous(0), call.contiguous_result(0), call.pool());
}

// Scans and sorts

Lines lines_along(const BoundTensor& tensor, int given) {
  const auto axis = static_cast<std::size_t>(axis_of(given, static_cast<int>(tensor.sizes.size())));
  Lines lines{1, tensor.sizes[axis], 1};
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    if (i < axis) lines.outer *= tensor.sizes[i];
    if (i > axis) lines.inner *= tensor.sizes[i];
  }
  return lines;
}

// The int8 or int4 weight that is operand i, with the scales and minimums after it.
CompactWeights quantised_weights(const WholeCall& call, std::size_t i) {
  const BoundTensor &weight = call.operand(i), &scales = call.operand(i + 1);
  return {weight.dtype, weight.data, scales.data, scales.dtype, weight.sizes.back(), call.operand(i + 2).data};
}

template <>
void run_whole<Op::dequantise>(WholeCall& call) {
  const CompactWeights weights = quantised_weights(call, 0);
  const std::int64_t length = weights.row;
  float* result = call.contiguous_result(0);
  call.pool().run(length == 0 ? 0 : element_count(call.operand(0).sizes) / length,
                  [&](std::int64_t row, int) { expand_weights(weights, row, 0, length, result + row * length); });
}

template <>
void run_whole<Op::embedding_quantised>(WholeCall& call) {
  const CompactWeights weights = quantised_weights(call, 0);
  const std::int64_t rows = call.operand(0).size(0), length = weights.row;
  const std::int32_t* ids = call.contiguous_integers(3);
  float* result = call.contiguous_result(0);
  if (rows == 0) return;
  call.pool().run(element_count(call.operand(3).sizes), [&](std::int64_t number, int) {
    const std::int64_t row = std::clamp<std::int64_t>(ids[number], 0, rows - 1);
    expand_weights(weights, row, 0, length, result + number * length);
  });
}

template <>
void run_whole<Op::sum_squares>(WholeCall& call) {
  std::vector<Floats> tensors;
  for (std::size_t i = 0; i < call.operands(); ++i)
    tensors.push_back({call.contiguous(i), element_count(call.operand(i).sizes)});
  *call.contiguous_result(0) = sum_squares(tensors, call.pool());
}

template <>
void run_whole<Op::cumsum>(WholeCall& call) {
  const auto& attrs = call.as<CumsumAttrs>();
  const Lines lines = lines_along(call.operand(0), attrs.axis);
  if (is_float(call.operand(0).dtype))
    run_cumsum(lines, call.contiguous(0), call.contiguous_result(0), attrs.reverse, call.pool());
  else
    run_cumsum(lines, call.contiguous_integers(0), call.contiguous_integer_result(0), attrs.reverse, call.pool());
}

template <>
void run_whole<Op::cummax>(WholeCall& call) {
  const auto& attrs = call.as<CumsumAttrs>();
  const Lines lines = lines_along(call.operand(0), attrs.axis);
  const auto run = [&]<class T>(const T* x) {
    run_cummax(lines, x, reinterpret_cast<T*>(call.contiguous_result(0)), call.contiguous_integer_result(1),
               attrs.reverse, call.pool());
  };
  if (is_float(call.operand(0).dtype)) return run(call.contiguous(0));
  const std::int32_t* integers = call.contiguous_integers(0);
  if (call.operand(0).dtype == DType::u32) return run(reinterpret_cast<const std::uint32_t*>(integers));
  run(integers);
}

// Maps integers so that they sort as i32: the top bit of unsigned ones is flipped.
std::vector<std::int32_t> sortable(WholeCall& call) {
  const std::int64_t count = element_count(call.operand(0).sizes);
  const std::int32_t* values = call.contiguous_integers(0);
  std::vector<std::int32_t> result(values, values + count);
  if (call.operand(0).dtype == DType::u32)
    for (std::int32_t& value : result) value ^= std::numeric_limits<std::int32_t>::min();
  return result;
}

template <>
void run_whole<Op::top_k>(WholeCall& call) {
  const auto& attrs = call.as<TopKAttrs>();
  const Lines lines = lines_along(call.operand(0), attrs.axis);
  if (is_float(call.operand(0).dtype)) {
    run_top_k(lines, call.contiguous(0), attrs.k, call.contiguous_result(0), call.contiguous_integer_result(1),
              call.pool());
    return;
  }
  std::int32_t* values = call.contiguous_integer_result(0);
  run_top_k(lines, sortable(call).data(), attrs.k, values, call.contiguous_integer_result(1), call.pool());
  if (call.operand(0).dtype == DType::u32)
    for (std::int64_t i = 0; i < element_count(call.result(0).sizes); ++i)
      values[i] ^= std::numeric_limits<std::int32_t>::min();
}

template <>
void run_whole<Op::argsort>(WholeCall& call) {
  const auto& attrs = call.as<ArgsortAttrs>();
  const Lines lines = lines_along(call.operand(0), attrs.axis);
  if (is_float(call.operand(0).dtype))
    run_argsort(lines, call.contiguous(0), attrs.descending, call.contiguous_integer_result(0), call.pool());
  else
    run_argsort(lines, sortable(call).data(), attrs.descending, call.contiguous_integer_result(0), call.pool());
}

// Scatters

template <>
void run_whole<Op::embedding_grad>(WholeCall& call) {
  run_embedding_grad(call.contiguous_integers(0), call.contiguous(1), element_count(call.operand(0).sizes),
                     call.result(0).size(0), call.result(0).size(1), call.contiguous_result(0), call.pool());
}

template <class T>
ScatterProblem<T> scatter_problem(WholeCall& call) {
  const int axis = call.as<AxisAttrs>().axis;
  const Lines lines = lines_along(call.operand(0), axis);
  return {lines.outer,
          lines.length,
          lines_along(call.operand(1), axis).length,
          lines.inner,
          reinterpret_cast<const T*>(call.contiguous(0)),
          call.contiguous_integers(1),
          reinterpret_cast<const T*>(call.contiguous(2)),
          reinterpret_cast<T*>(call.contiguous_result(0))};
}

template <>
void run_whole<Op::scatter>(WholeCall& call) {
  // Moves bits, whatever their type.
  run_scatter(scatter_problem<std::int32_t>(call), call.pool());
}

template <>
void run_whole<Op::scatter_add>(WholeCall& call) {
  if (is_float(call.operand(0).dtype))
    run_scatter_add(scatter_problem<float>(call), call.pool());
  else
    run_scatter_add(scatter_problem<std::int32_t>(call), call.pool());
}

template <>
void run_whole<Op::cache_append>(WholeCall& call) {
  const BoundTensor &cache = call.operand(0), &values = call.operand(1);
  CacheAppendProblem problem;
  problem.batch = values.size(0);
  problem.heads = cache.size(1);
  problem.capacity = cache.size(2);
  problem.width = cache.size(3);
  problem.time = values.size(2);
  if (const BoundTensor& table = call.operand(3); table.present()) {
    problem.table = call.contiguous_integers(3);
    problem.blocks = cache.size(0);
    problem.block = cache.size(2);
    problem.capacity = table.size(1) * problem.block;
  }
  std::vector<std::int64_t> strides;
  const bool packs = cache.dtype == packed_cache && is_float(values.dtype);
  if (packs) problem.packed_size = values.size(3);
  const std::uint16_t* halves = packs ? nullptr : call.halves_with_strides(1, strides);
  if (halves != nullptr && is_row_major(cache) && is_row_major(call.result(0))) {
    const auto at = [](const BoundTensor& tensor) {
      return reinterpret_cast<std::uint16_t*>(tensor.data) + tensor.offset;
    };
    problem.element_size = sizeof(std::uint16_t);
    problem.values = halves;
    problem.cache = at(cache);
    problem.out = at(call.result(0));
  } else {
    problem.values = call.with_strides(1, strides);
    problem.cache = call.contiguous(0);
    problem.out = call.contiguous_result(0);
  }
  problem.value_strides = {strides[0], strides[1], strides[2]};
  problem.positions = call.contiguous_integers(2);
  problem.position_strides = {problem.time, 1};
  problem.ring = call.as<CacheAppendAttrs>().ring;
  run_cache_append(problem, call.pool());
}

// Products of groups of rows

template <>
void run_whole<Op::matmul_grouped>(WholeCall& call) {
  const BoundTensor &x = call.operand(0), &w = call.operand(1);
  const GroupedMatmul grouped{w.size(0), x.size(0), x.size(1), call.result(0).size(1), call.contiguous_integers(2)};
  run_matmul_grouped(grouped, call.contiguous(0), call.contiguous(1), call.as<GroupedAttrs>().transpose_b,
                     call.contiguous_result(0), call.pool());
}

template <>
void run_whole<Op::matmul_grouped_quantised>(WholeCall& call) {
  const BoundTensor &x = call.operand(0), &weight = call.operand(1);
  const GroupedMatmul grouped{weight.size(0), x.size(0), x.size(1), weight.size(1), call.contiguous_integers(4)};
  run_matmul_grouped(grouped, call.contiguous(0), quantised_weights(call, 1), call.integer_products(),
                     call.contiguous_result(0), call.pool());
}

template <>
void run_whole<Op::matmul_grouped_weight_grad>(WholeCall& call) {
  const BoundTensor& dw = call.result(0);
  const GroupedMatmul grouped{dw.size(0), call.operand(0).size(0), dw.size(1), dw.size(2), call.contiguous_integers(2)};
  run_matmul_grouped_weight_grad(grouped, call.contiguous(0), call.contiguous(1), call.contiguous_result(0),
                                 call.pool());
}

using WholeFunction = void (*)(WholeCall&);

constexpr auto whole_functions = detail::op_functions<WholeFunction>([]<Op op>() -> WholeFunction {
  if constexpr (detail::columns_of<op>.lowering == Lowering::Whole) return &run_whole<op>;
  return nullptr;
});

class WholeKernel final : public Kernel {
 public:
  WholeKernel(const KernelSpec& kernel, const SymbolValues& symbols)
      : attrs_(kernel.attrs), function_(whole_functions[static_cast<std::size_t>(kernel.op)]) {
    for (const TensorAccess& operand : kernel.operands) operands_.push_back(bound(operand, symbols));
    for (const TensorAccess& result : kernel.results) results_.push_back(bound(result, symbols));
  }

  void run(const std::vector<Memory>& memory, Workers& workers) override {
    WholeCall call(attrs_, with_memory(operands_, memory), with_memory(results_, memory), workers);
    function_(call);
    call.finish();
  }

 private:
  struct Waiting {
    BoundTensor tensor;
    int binding = -1;
  };

  static Waiting bound(const TensorAccess& access, const SymbolValues& symbols) {
    Waiting waiting;
    waiting.binding = access.binding;
    if (access.binding < 0) return waiting;
    waiting.tensor.dtype = access.dtype;
    waiting.tensor.sizes = jerboa::evaluate(access.shape, symbols);
    waiting.tensor.offset = access.offset.evaluate(symbols);
    for (const Dim& stride : access.strides) waiting.tensor.strides.push_back(stride.evaluate(symbols));
    return waiting;
  }

  static std::vector<BoundTensor> with_memory(const std::vector<Waiting>& list, const std::vector<Memory>& memory) {
    std::vector<BoundTensor> tensors;
    for (const Waiting& waiting : list) {
      tensors.push_back(waiting.tensor);
      if (waiting.binding >= 0) tensors.back().data = memory[static_cast<std::size_t>(waiting.binding)].data;
    }
    return tensors;
  }

  Attrs attrs_;
  WholeFunction function_;
  std::vector<Waiting> operands_, results_;
};

}  // namespace

std::unique_ptr<Kernel> prepare_whole(const KernelSpec& kernel, const SymbolValues& symbols) {
  return std::make_unique<WholeKernel>(kernel, symbols);
}

}  // namespace jerboa::cpu
