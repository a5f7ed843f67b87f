#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <jerboa/backend/reference.h>
#include <jerboa/ops/ops.h>

namespace jerboa::test {

/// The symbols that sample cases use, and their values in every run.
inline const Dim T = Dim::symbol("T", 16);
inline const Dim B = Dim::symbol("B", 8);
inline const SymbolValues symbol_values{{"T", 5}, {"B", 2}};

/// How one operand of a sample case gets its values.
struct Draw {
  enum class Kind { uniform, distinct, whole, given, absent, computed };
  using Compute = std::function<Tensor(const std::vector<Tensor>&)>;

  Kind kind = Kind::uniform;
  Shape shape;
  DType dtype = DType::f32;
  double low = -2, high = 2;
  std::vector<double> values;
  Compute compute;
};

// Floats: any; in a range; or all different and nonzero, for ops with a kink or a choice.
inline Draw within(double low, double high, Shape shape) {
  return {Draw::Kind::uniform, std::move(shape), DType::f32, low, high, {}, {}};
}
inline Draw any(Shape shape) { return within(-2, 2, std::move(shape)); }
inline Draw positive(Shape shape) { return within(0.5, 2, std::move(shape)); }
inline Draw distinct(Shape shape) { return {Draw::Kind::distinct, std::move(shape), DType::f32, -2, 2, {}, {}}; }
// Whole numbers from `low` to `high`, both included, and conditions.
inline Draw whole(double low, double high, Shape shape, DType dtype = DType::i32) {
  return {Draw::Kind::whole, std::move(shape), dtype, low, high, {}, {}};
}
inline Draw flags(Shape shape) { return whole(0, 1, std::move(shape), DType::boolean); }
inline Draw given(Shape shape, std::vector<double> values, DType dtype = DType::i32) {
  return {Draw::Kind::given, std::move(shape), dtype, 0, 0, std::move(values), {}};
}
inline Draw absent() { return {Draw::Kind::absent, {}, DType::f32, 0, 0, {}, {}}; }
/// Rows of an 8-bit cache, whose shape counts features: any bytes, and scales of about 1 / 64.
Draw packed_rows(Shape shape);
/// Computed from the other operands, which must not be computed themselves.
inline Draw computed(Draw::Compute compute) {
  return {Draw::Kind::computed, {}, DType::f32, 0, 0, {}, std::move(compute)};
}

/// One use of an op: its operands and attributes.
struct Case {
  std::vector<Draw> operands;
  Attrs attrs = NoAttrs{};
  std::vector<std::size_t> outputs = {};  ///< those that take part in gradient checks; empty: all floats
};

/// The sample cases of an op. A row of the op table without them, leaves aside, does not compile.
const std::vector<Case>& cases_of(Op op);

/// A case in a graph that is being traced.
struct Instance {
  std::vector<Tensor> operands;  ///< empty where absent
  std::vector<Tensor> outputs;
  std::vector<Tensor> floats;  ///< the float operands that are inputs of the graph
};

/// Appends the case to the traced graph, its operands being inputs of the graph whose values go to `inputs`. Floats are
/// of the given type. The op's site is "model.cpp:41".
Instance build(Op op, const Case& sample, std::map<std::string, Value>& inputs, DType floats = DType::f32);

/// An input of the traced graph with values in (-1, 1), the same for the same name.
Tensor weight_input(const std::string& name, const Tensor& like, std::map<std::string, Value>& inputs);

/// Values of some tensors.
std::vector<Value> run(const Graph& graph, const std::vector<TensorId>& keep,
                       const std::map<std::string, Value>& inputs,
                       ReferencePrecision precision = ReferencePrecision::f64);

/// "add #3 [4, 1] [1, 8] {}": what a failure is about.
std::string describe(Op op, std::size_t index, const Case& sample);

}  // namespace jerboa::test
