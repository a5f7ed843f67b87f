#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include <jerboa/base/dtype.h>
#include <jerboa/base/fields.h>
#include <jerboa/ir/dim.h>

namespace jerboa {

// Attributes of ops: plain structs whose fields are listed once, for printing, JSON, comparison and the documentation.
// A negative axis counts from the end; the builders leave it as the user wrote it.

enum class GeluForm : std::uint8_t { none, tanh };
enum class Distribution : std::uint8_t { uniform, normal };
enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn };

/// The names of an enum's values in order, as written in JSON.
constexpr auto enum_names(GeluForm) { return std::to_array<std::string_view>({"none", "tanh"}); }
constexpr auto enum_names(Distribution) { return std::to_array<std::string_view>({"uniform", "normal"}); }
constexpr auto enum_names(RopeScaling) { return std::to_array<std::string_view>({"none", "linear", "llama3", "yarn"}); }

struct NoAttrs {
  JERBOA_FIELDS()
};
struct ConstScalarAttrs {
  double value = 0;
  DType dtype = DType::f32;
  JERBOA_FIELDS(value, dtype)
};
struct ConstantAttrs {
  int blob = 0;  ///< index into Graph::constants
  JERBOA_FIELDS(blob)
};
struct ArangeAttrs {
  Dim length = 0;
  double start = 0, step = 1;
  DType dtype = DType::i32;
  JERBOA_FIELDS(length, start, step, dtype)
};
struct RandomAttrs {
  Shape shape;
  Distribution distribution = Distribution::uniform;
  int stream = 0;  ///< different streams of one key are independent
  JERBOA_FIELDS(shape, distribution, stream)
};
struct CastAttrs {
  DType dtype = DType::f32;
  JERBOA_FIELDS(dtype)
};
struct GeluAttrs {
  GeluForm approximate = GeluForm::none;
  JERBOA_FIELDS(approximate)
};
struct PowAttrs {
  double exponent = 1;  ///< used if the second operand is absent
  JERBOA_FIELDS(exponent)
};
struct ClampAttrs {
  double min = 0, max = 0;
  JERBOA_FIELDS(min, max)
};
struct AxisAttrs {
  int axis = -1;
  JERBOA_FIELDS(axis)
};
struct ReduceAttrs {
  std::vector<int> axes;  ///< empty: all axes
  bool keepdims = false;
  JERBOA_FIELDS(axes, keepdims)
};
struct ArgmaxAttrs {
  int axis = -1;
  bool keepdims = false;
  JERBOA_FIELDS(axis, keepdims)
};
struct CumsumAttrs {
  int axis = -1;
  bool reverse = false;  ///< sum from the end
  JERBOA_FIELDS(axis, reverse)
};
struct TopKAttrs {
  int k = 1, axis = -1;
  JERBOA_FIELDS(k, axis)
};
struct ArgsortAttrs {
  int axis = -1;
  bool descending = false;
  JERBOA_FIELDS(axis, descending)
};
struct ShapeAttrs {
  Shape shape;
  JERBOA_FIELDS(shape)
};
struct TransposeAttrs {
  std::vector<int> perm;
  JERBOA_FIELDS(perm)
};
struct SwapAxesAttrs {
  int a = -1, b = -2;
  JERBOA_FIELDS(a, b)
};
struct AxesAttrs {
  std::vector<int> axes;
  JERBOA_FIELDS(axes)
};
struct SliceAttrs {
  int axis = 0;
  Dim start = 0, end = 0;  ///< a negative number counts from the end
  std::int64_t step = 1;
  JERBOA_FIELDS(axis, start, end, step)
};
struct SplitAttrs {
  int axis = -1;
  Shape sizes;
  JERBOA_FIELDS(axis, sizes)
};
struct PadAttrs {
  Shape before, after;  ///< one number per axis
  double value = 0;
  JERBOA_FIELDS(before, after, value)
};
struct EmbeddingGradAttrs {
  Dim rows = 0;
  JERBOA_FIELDS(rows)
};
struct OneHotAttrs {
  Dim depth = 0;
  DType dtype = DType::f32;
  JERBOA_FIELDS(depth, dtype)
};
struct MatmulAttrs {
  bool transpose_a = false, transpose_b = false;
  JERBOA_FIELDS(transpose_a, transpose_b)
};
struct GroupedAttrs {
  bool transpose_b = false;
  JERBOA_FIELDS(transpose_b)
};
struct Conv1dAttrs {
  int stride = 1, padding = 0, dilation = 1, groups = 1;
  JERBOA_FIELDS(stride, padding, dilation, groups)
};
struct Conv2dAttrs {
  std::vector<int> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int groups = 1;
  JERBOA_FIELDS(stride, padding, dilation, groups)
};
struct Conv2dGradAttrs {
  std::vector<int> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int groups = 1;
  Shape size;  ///< height and width of the gradient: the input's, or the kernel's
  JERBOA_FIELDS(stride, padding, dilation, groups, size)
};
struct PoolAttrs {
  std::vector<int> kernel{2, 2}, stride{2, 2}, padding{0, 0};
  JERBOA_FIELDS(kernel, stride, padding)
};
struct PoolGradAttrs {
  std::vector<int> kernel{2, 2}, stride{2, 2}, padding{0, 0};
  Shape size;  ///< height and width of the input
  JERBOA_FIELDS(kernel, stride, padding, size)
};
struct EpsAttrs {
  double eps = 1e-5;
  JERBOA_FIELDS(eps)
};
struct FillAttrs {
  double fill = 0;
  JERBOA_FIELDS(fill)
};
struct RopeAttrs {
  double base = 10000;
  int dims = 0;              ///< leading features that rotate; 0: all
  bool interleaved = false;  ///< pairs are (0, 1), (2, 3) … instead of (0, n/2), (1, n/2 + 1) …
  bool inverse = false;      ///< rotate backwards
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  double attention_factor = 0;                       ///< yarn; 0: 0.1 ln(factor) + 1
  int original_context = 0;                          ///< llama3 and yarn
  JERBOA_FIELDS(base, dims, interleaved, inverse, scaling, factor, low_freq_factor, high_freq_factor, beta_fast,
                beta_slow, attention_factor, original_context)
};
/// A float mask of this type at or below this value hides a key from attention, as false does.
constexpr double hidden_key(DType dtype) { return dtype == DType::f16 ? -65504 : -1e8; }

struct AttentionAttrs {
  double scale = 0;  ///< 0: 1 / sqrt(size of a head)
  bool causal = false;
  int window = 0;       ///< a query sees this many of the latest positions, including itself; 0: all
  double soft_cap = 0;  ///< scores become cap * tanh(score / cap); 0: off
  bool ring = false;    ///< keys are stored at position modulo capacity, as cache_append does with ring
  JERBOA_FIELDS(scale, causal, window, soft_cap, ring)
};
struct AttentionGradAttrs {
  double scale = 0;
  bool causal = false;
  int window = 0;
  double soft_cap = 0;
  bool ring = false;
  bool mask_grad = false;  ///< also return the gradient of a float mask
  JERBOA_FIELDS(scale, causal, window, soft_cap, ring, mask_grad)
};
struct CrossEntropyAttrs {
  double label_smoothing = 0;
  JERBOA_FIELDS(label_smoothing)
};
struct CacheAppendAttrs {
  bool ring = false;  ///< store at position modulo capacity
  JERBOA_FIELDS(ring)
};
struct AdamAttrs {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;  ///< the decay is decoupled
  JERBOA_FIELDS(beta1, beta2, eps, weight_decay)
};
struct SgdAttrs {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
  JERBOA_FIELDS(momentum, weight_decay, nesterov)
};

using Attrs =
    std::variant<NoAttrs, ConstScalarAttrs, ConstantAttrs, ArangeAttrs, RandomAttrs, CastAttrs, GeluAttrs, PowAttrs,
                 ClampAttrs, AxisAttrs, ReduceAttrs, ArgmaxAttrs, CumsumAttrs, TopKAttrs, ArgsortAttrs, ShapeAttrs,
                 TransposeAttrs, SwapAxesAttrs, AxesAttrs, SliceAttrs, SplitAttrs, PadAttrs, EmbeddingGradAttrs,
                 OneHotAttrs, MatmulAttrs, GroupedAttrs, Conv1dAttrs, Conv2dAttrs, Conv2dGradAttrs, PoolAttrs,
                 PoolGradAttrs, EpsAttrs, FillAttrs, RopeAttrs, AttentionAttrs, AttentionGradAttrs, CrossEntropyAttrs,
                 CacheAppendAttrs, AdamAttrs, SgdAttrs>;

/// Whether they have the same type and equal fields.
bool same_attrs(const Attrs& a, const Attrs& b);

}  // namespace jerboa
