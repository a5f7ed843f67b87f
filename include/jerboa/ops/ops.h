#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <vector>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {

// The ops that models are written in: free functions on tensors, parameters and numbers. docs/ops.md lists them all
// with their semantics. Each appends a node to the graph that is being traced, or throws ShapeError with the user's
// line.

using Axes = std::vector<int>;

/// Any op by its table row. Absent operands are `{}`; numbers take the type of the first tensor among the operands.
std::vector<Tensor> apply(Op op, const std::vector<Operand>& operands, Attrs attrs);

// Leaves

struct ParamOptions {
  Init init = Init::zeros();
  bool trainable = true;
  bool decay = true;
  DType dtype = DType::f32;
  std::string tied_to = {};
};
Tensor param_input(const std::string& name, Shape shape, ParamOptions options = {}, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE());
Tensor tensor_input(const std::string& name, Shape shape, DType dtype = DType::f32, const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());
Tensor state_input(const std::string& name, Shape shape, DType dtype = DType::f32, Init init = Init::zeros(),
                   const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor scalar(double value, DType dtype = DType::f32, const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor constant(HostTensor values, const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor full(Shape shape, double value, DType dtype = DType::f32, const char* file = __builtin_FILE(),
            int line = __builtin_LINE());
Tensor zeros(Shape shape, DType dtype = DType::f32, const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor zeros_like(Operand x);
/// 0, 1, … length - 1
Tensor arange(Dim length, DType dtype = DType::i32, const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor random(Operand key, Shape shape, Distribution distribution = Distribution::uniform, int stream = 0);
/// Random numbers that differ at every step and reproduce with the session's seed.
Tensor random_uniform(Shape shape, const char* file = __builtin_FILE(), int line = __builtin_LINE());
Tensor random_normal(Shape shape, const char* file = __builtin_FILE(), int line = __builtin_LINE());

// What the graph returns and keeps

/// Makes a tensor an output of the graph under this name.
void output(const std::string& name, Operand x);
/// Makes a tensor readable after a step under this name; copied only on request.
Tensor capture(Operand x, const std::string& name);
/// Makes `value` the next version of a parameter or state.
void update(Operand target, Operand value);

// Element-wise

Tensor neg(Operand x);
Tensor abs(Operand x);
Tensor sqrt(Operand x);
Tensor rsqrt(Operand x);
Tensor log(Operand x);
Tensor exp(Operand x);
Tensor expm1(Operand x);
Tensor sin(Operand x);
Tensor cos(Operand x);
Tensor tanh(Operand x);
Tensor sigmoid(Operand x);
Tensor erf(Operand x);
Tensor relu(Operand x);
Tensor silu(Operand x);
Tensor gelu(Operand x, GeluForm approximate = GeluForm::none);
Tensor softplus(Operand x);
Tensor floor(Operand x);
Tensor round(Operand x);
Tensor square(Operand x);
Tensor clamp(Operand x, double min, double max);
Tensor cast(Operand x, DType dtype);
/// x unchanged, but a constant for gradients: nothing that x was computed from gets a gradient through it.
Tensor stop_gradient(Operand x);
Tensor logical_not(Operand x);
Tensor bit_not(Operand x);

Tensor add(Operand a, Operand b);
Tensor sub(Operand a, Operand b);
Tensor mul(Operand a, Operand b);
Tensor div(Operand a, Operand b);
/// With an integer exponent the base may be negative.
Tensor pow(Operand a, Operand b);
Tensor maximum(Operand a, Operand b);
Tensor minimum(Operand a, Operand b);
Tensor mod(Operand a, Operand b);
Tensor equal(Operand a, Operand b);
Tensor not_equal(Operand a, Operand b);
Tensor less(Operand a, Operand b);
Tensor less_equal(Operand a, Operand b);
Tensor greater(Operand a, Operand b);
Tensor greater_equal(Operand a, Operand b);
Tensor logical_and(Operand a, Operand b);
Tensor logical_or(Operand a, Operand b);
Tensor bit_and(Operand a, Operand b);
Tensor bit_or(Operand a, Operand b);
Tensor bit_xor(Operand a, Operand b);
Tensor shift_left(Operand a, Operand b);
Tensor shift_right(Operand a, Operand b);
Tensor where(Operand condition, Operand a, Operand b);

inline Tensor operator+(Operand a, Operand b) { return add(a, b); }
inline Tensor operator-(Operand a, Operand b) { return sub(a, b); }
inline Tensor operator*(Operand a, Operand b) { return mul(a, b); }
inline Tensor operator/(Operand a, Operand b) { return div(a, b); }
inline Tensor operator-(Operand x) { return neg(x); }
inline Tensor operator<(Operand a, Operand b) { return less(a, b); }
inline Tensor operator<=(Operand a, Operand b) { return less_equal(a, b); }
inline Tensor operator>(Operand a, Operand b) { return greater(a, b); }
inline Tensor operator>=(Operand a, Operand b) { return greater_equal(a, b); }

// Reductions, scans and sorts; no axes means all of them

Tensor sum(Operand x, Axes axes = {}, bool keepdims = false);
Tensor mean(Operand x, Axes axes = {}, bool keepdims = false);
Tensor max(Operand x, Axes axes = {}, bool keepdims = false);
Tensor min(Operand x, Axes axes = {}, bool keepdims = false);
Tensor argmax(Operand x, int axis = -1, bool keepdims = false);
Tensor all_finite(Operand x);
/// The sum of the squares of all elements of all tensors: a global norm is its square root.
Tensor sum_squares(const std::vector<Operand>& tensors);
Tensor cumsum(Operand x, int axis = -1, bool reverse = false);
struct CumMax {
  Tensor values, indices;
};
/// The running maximum, and where it is. Of equal values it is the first.
CumMax cummax(Operand x, int axis = -1, bool reverse = false);
struct TopK {
  Tensor values, indices;
};
TopK top_k(Operand x, int k, int axis = -1);
Tensor argsort(Operand x, int axis = -1, bool descending = false);

// Shape

Tensor reshape(Operand x, Shape shape);
Tensor transpose(Operand x, std::vector<int> perm);
Tensor swap_axes(Operand x, int a, int b);
Tensor squeeze(Operand x, Axes axes);
Tensor unsqueeze(Operand x, Axes axes);
Tensor broadcast_to(Operand x, Shape shape);
Tensor sum_to_shape(Operand x, Shape shape);
/// Elements start, start + step, … below end along an axis; negative numbers count from the end.
Tensor slice(Operand x, int axis, Dim start, Dim end, std::int64_t step = 1);
Tensor concat(const std::vector<Operand>& parts, int axis = -1);
std::vector<Tensor> split(Operand x, Shape sizes, int axis = -1);
Tensor pad(Operand x, Shape before, Shape after, double value = 0);

/// N equal parts: auto [q, k, v] = split<3>(x);
template <std::size_t N>
std::array<Tensor, N> split(Operand x, int axis = -1);

// Indexing

Tensor embedding(Operand table, Operand ids);
/// Rows of an int8 or int4 weight, as dequantise gives them; `mins` may be empty.
Tensor embedding_quantised(Operand weight, Operand scales, Operand mins, Operand ids);
Tensor embedding_grad(Operand ids, Operand dy, Dim rows);
Tensor take_along_axis(Operand x, Operand indices, int axis = -1);
inline Tensor gather(Operand x, Operand indices, int axis = -1) { return take_along_axis(x, indices, axis); }
Tensor scatter(Operand x, Operand indices, Operand updates, int axis = -1);
Tensor scatter_add(Operand x, Operand indices, Operand updates, int axis = -1);
Tensor one_hot(Operand ids, Dim depth, DType dtype = DType::f32);

// Linear algebra

Tensor matmul(Operand a, Operand b, MatmulAttrs attrs = {});
/// x times the transpose of an int8 or int4 weight [out, in]. Every 32 weights in a row share a scale, [out, in / 32],
/// and optionally a minimum of the same shape: weight * scale + min.
Tensor matmul_quantised(Operand x, Operand weight, Operand scales, Operand mins = {});
/// The values that such a weight represents; it may have leading axes.
Tensor dequantise(Operand weight, Operand scales, Operand mins = {});
Tensor matmul_grouped(Operand x, Operand w, Operand offsets, GroupedAttrs attrs = {});
/// The same for the transposes of int8 or int4 weights [groups, out, in]; `mins` may be empty.
Tensor matmul_grouped_quantised(Operand x, Operand weight, Operand scales, Operand mins, Operand offsets);
Tensor matmul_grouped_weight_grad(Operand x, Operand dy, Operand offsets);
Tensor conv1d(Operand x, Operand weight, Operand bias = {}, Conv1dAttrs attrs = {});
Tensor conv2d(Operand x, Operand weight, Operand bias = {}, Conv2dAttrs attrs = {});
Tensor conv2d_input_grad(Operand dy, Operand weight, Conv2dGradAttrs attrs);
Tensor conv2d_weight_grad(Operand x, Operand dy, Conv2dGradAttrs attrs);
Tensor max_pool2d(Operand x, PoolAttrs attrs = {});
Tensor max_pool2d_grad(Operand x, Operand dy, PoolGradAttrs attrs);
Tensor avg_pool2d(Operand x, PoolAttrs attrs = {});
Tensor avg_pool2d_grad(Operand dy, PoolGradAttrs attrs);

// Blocks

Tensor softmax(Operand x, int axis = -1);
Tensor log_softmax(Operand x, int axis = -1);
Tensor where_causal(Operand x, double fill);
Tensor causal_softmax(Operand x);
Tensor layer_norm(Operand x, Operand weight = {}, Operand bias = {}, double eps = 1e-5);
Tensor rms_norm(Operand x, Operand weight = {}, double eps = 1e-6);
Tensor rope(Operand x, Operand positions = {}, RopeAttrs attrs = {});
Tensor swiglu(Operand a, Operand b);
Tensor geglu(Operand a, Operand b, GeluForm approximate = GeluForm::tanh);
struct CrossEntropyOptions {
  double label_smoothing = 0;
  Tensor mask = {};
};
/// A loss per position; take the mean yourself.
Tensor cross_entropy(Operand logits, Operand targets, CrossEntropyOptions options = {});

struct AttentionOptions {
  int heads = 0;     ///< if q, k and v are [batch, time, heads * size]; 0: they are [batch, heads, time, size]
  int kv_heads = 0;  ///< heads of k and v; 0: as many as q
  bool causal = false;
  double scale = 0;  ///< 0: 1 / sqrt(size of a head)
  int window = 0;
  double soft_cap = 0;
  bool ring = false;
  Tensor mask = {};       ///< boolean (true: visible) or added to the scores; broadcasts to [batch, heads, time, keys]
  Tensor sinks = {};      ///< one logit per head that takes part in the softmax without a value
  Tensor lengths = {};    ///< i32[batch]: valid keys
  Tensor positions = {};  ///< i32[batch, time]: of the queries; by default they are the last ones
  Tensor table = {};      ///< i32[batch, n]: for a paged cache k and v, the block of the keys from i * block on
  std::string capture = {};  ///< keep the probabilities under this name
};
Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options = {});
/// The probabilities [batch, heads, time, keys] that attention would use.
Tensor attention_weights(Operand q, Operand k, const AttentionOptions& options = {});
/// [batch, time, heads * size] → [batch, heads, time, size], and back.
Tensor split_heads(Operand x, int heads);
Tensor merge_heads(Operand x);

// Recurrences

/// The initial state of a recurrence, and the tokens that take part in it.
struct RecurrentOptions {
  Tensor state = {};      ///< a row per sequence; by default zeros
  Tensor positions = {};  ///< i32[batch, time]: negative ones are skipped; a row that starts at 0 starts from zeros
  Tensor slots = {};      ///< i32[batch]: the row of the state that a sequence has; by default its number in the batch
};
/// The result of a recurrence, and its state after the last token: the next version of the given state, in the same
/// shape.
struct Recurrent {
  Tensor y, state;
};
/// Each channel of x [batch, time, channels] convolved with its row of weight [channels, taps], whose last tap is the
/// token itself. The state [batch, taps - 1, channels] holds the inputs before the first token.
Recurrent causal_conv1d(Operand x, Operand weight, const RecurrentOptions& options = {});
/// Attention without a softmax, over a state S [batch, heads, key size, value size] (Mamba-2, RetNet, mLSTM):
/// S = exp(log_decay) S + k ⊗ v and y = q S for each token. With beta the gated delta rule (Qwen3-Next), where k ⊗ v is
/// k ⊗ beta (v - k exp(log_decay) S). q and k [batch, time, groups, key size] are shared by the heads of a group,
/// v is [batch, time, heads, value size], log_decay and beta [batch, time, heads].
Recurrent linear_attention(Operand q, Operand k, Operand v, Operand log_decay, Operand beta = {},
                           const RecurrentOptions& options = {});

// State

struct CacheAppendOptions {
  bool ring = false;  ///< positions are taken modulo the capacity
  Tensor table = {};  ///< i32[batch, n]: the cache is paged, as in AttentionOptions
};
Tensor cache_append(Operand cache, Operand values, Operand positions, const CacheAppendOptions& options = {});
struct AdamUpdate {
  Tensor param, m, v;
};
AdamUpdate adam_update(Operand param, Operand grad, Operand m, Operand v, Operand lr, Operand step,
                       AdamAttrs attrs = {});
struct SgdUpdate {
  Tensor param, velocity;
};
SgdUpdate sgd_update(Operand param, Operand grad, Operand lr, Operand velocity = {}, SgdAttrs attrs = {});

namespace detail {
std::vector<Tensor> split_equal(Operand x, std::size_t parts, int axis);
}

template <std::size_t N>
std::array<Tensor, N> split(Operand x, int axis) {
  std::array<Tensor, N> parts;
  const auto list = detail::split_equal(x, N, axis);
  for (std::size_t i = 0; i < N; ++i) parts[i] = list[i];
  return parts;
}

}  // namespace jerboa
