#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa {

/// A tensor's values in the reference evaluator. Every type is stored as doubles, which represent i32, u32 and booleans
/// exactly.
struct Value {
  DType dtype = DType::f32;
  Sizes shape;
  std::vector<double> data;
};

Value to_value(const HostTensor& tensor);
HostTensor to_host(const Value& value);

/// Whether float results are rounded to the tensor's type after each op.
enum class ReferencePrecision { f32, f64 };

/// The oracle: straightforward loops, one op at a time, sums in double. Slow and obviously right. `leaf` returns the
/// values of inputs, parameters and states; the result has a value for each tensor of `keep`. Ops that decompose are
/// rewritten first.
std::vector<Value> evaluate_reference(const Graph& graph, const std::vector<TensorId>& keep,
                                      const std::function<Value(const TensorInfo&)>& leaf,
                                      const SymbolValues& symbols = {},
                                      ReferencePrecision precision = ReferencePrecision::f32);

/// How often the evaluator was called in this process. Tests use it to check that no engine falls back on it.
std::int64_t reference_evaluations();

class Backend;
/// The evaluator as a device.
std::shared_ptr<Backend> make_reference_backend(ReferencePrecision precision = ReferencePrecision::f32);

}  // namespace jerboa
