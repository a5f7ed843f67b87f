#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <jerboa/backend/reference.h>
#include <jerboa/ops/ops.h>

namespace jerboa::test {

inline Value value(DType dtype, Sizes shape, std::vector<double> data) {
  return {dtype, std::move(shape), std::move(data)};
}
inline Value floats(Sizes shape, std::vector<double> data) {
  return value(DType::f32, std::move(shape), std::move(data));
}
inline Value floats(const std::vector<double>& data) { return floats({static_cast<std::int64_t>(data.size())}, data); }
inline Value integers(Sizes shape, std::vector<double> data) {
  return value(DType::i32, std::move(shape), std::move(data));
}
inline Value integers(const std::vector<double>& data) {
  return integers({static_cast<std::int64_t>(data.size())}, data);
}

/// The result of ops on these values: body gets a tensor for each.
inline std::vector<Value> evaluate_all(const std::vector<Value>& values,
                                       const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                                       ReferencePrecision precision = ReferencePrecision::f32) {
  std::map<std::string, Value> inputs;
  std::vector<TensorId> keep;
  const Graph graph = trace([&] {
    std::vector<Tensor> tensors;
    for (const Value& one : values) {
      const std::string name = "x" + std::to_string(tensors.size());
      inputs[name] = one;
      tensors.push_back(tensor_input(name, to_shape(one.shape), one.dtype));
    }
    for (const Tensor& result : body(tensors)) keep.push_back(result.id());
  });
  return evaluate_reference(
      graph, keep, [&](const TensorInfo& leaf) { return inputs.at(leaf.name); }, {}, precision);
}

inline std::vector<double> evaluate_one(const std::vector<Value>& values,
                                        const std::function<Tensor(const std::vector<Tensor>&)>& body,
                                        ReferencePrecision precision = ReferencePrecision::f32) {
  return evaluate_all(
             values, [&](const std::vector<Tensor>& x) { return std::vector<Tensor>{body(x)}; }, precision)
      .front()
      .data;
}

}  // namespace jerboa::test
