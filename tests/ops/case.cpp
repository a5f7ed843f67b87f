#include "ops/case.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>

#include <jerboa/ir/packed_cache.h>

namespace jerboa::test {
namespace {

// The same numbers with every standard library, which std::uniform_real_distribution does not guarantee.
class Source {
 public:
  explicit Source(const std::string& seed) {
    std::uint32_t hash = 2166136261u;
    for (const char c : seed) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    engine_.seed(hash);
  }
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  std::size_t below(std::size_t count) { return engine_() % count; }

 private:
  std::mt19937_64 engine_;
};

// A shuffled grid around 0, excluding 0. Each operand has a different grid, so that two of them share no value.
std::vector<double> grid(std::size_t count, double operand, Source& source) {
  const double even = std::max(4.0 / static_cast<double>(std::max<std::size_t>(count, 1)), 0.01);
  const double spacing = even * (1 + 0.0371 * operand), offset = 0.31 + 0.23 * operand;
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = (static_cast<double>(i) - std::floor(static_cast<double>(count) / 2) + offset) * spacing;
  for (std::size_t i = count; i > 1; --i) std::swap(values[i - 1], values[source.below(i)]);
  return values;
}

Value draw(const Draw& how, std::size_t operand, const std::string& seed) {
  Source source(seed);
  Value value{how.dtype, evaluate(how.shape, symbol_values), {}};
  const auto count = static_cast<std::size_t>(element_count(value.shape));
  switch (how.kind) {
    case Draw::Kind::uniform:
      for (std::size_t i = 0; i < count; ++i) value.data.push_back(source.uniform(how.low, how.high));
      break;
    case Draw::Kind::whole:
      for (std::size_t i = 0; i < count; ++i) value.data.push_back(std::floor(source.uniform(how.low, how.high + 1)));
      break;
    case Draw::Kind::distinct: value.data = grid(count, static_cast<double>(operand), source); break;
    case Draw::Kind::given: value.data = how.values; break;
    case Draw::Kind::absent:
    case Draw::Kind::computed: break;
  }
  return value;
}

// The values rounded to the type; those beyond its range are clamped.
Value in_type(Value value, DType dtype) {
  value.dtype = dtype;
  if (dtype == DType::f16)
    for (double& element : value.data) element = std::clamp(element, -65504.0, 65504.0);
  return dtype == DType::f32 ? value : to_value(to_host(value));
}

}  // namespace

Draw packed_rows(Shape shape) {
  const std::int64_t size = shape[3].value(), words = packed_words(size);
  shape[3] = words;
  std::vector<double> values;
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < element_count(shape).value(); ++i) {
    state = state * 1664525 + 1013904223;
    const bool is_scale = i % words >= size / features_per_word;
    values.push_back(is_scale ? (state >> 26) * 0x10001 + 0x3c603c70 : state ^ (state >> 13));
  }
  return given(std::move(shape), std::move(values), packed_cache);
}

Instance build(Op op, const Case& sample, std::map<std::string, Value>& inputs, DType floats) {
  Instance instance;
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    const Draw& how = sample.operands[i];
    if (how.kind == Draw::Kind::absent || how.kind == Draw::Kind::computed) {
      instance.operands.emplace_back();
      continue;
    }
    const std::string name = fmt::format("x{}", i);
    Value value = draw(how, i, fmt::format("{}/{}/{}", jerboa::name(op), describe(op, 0, sample), i));
    if (is_float(value.dtype)) value = in_type(value, floats);
    instance.operands.push_back(tensor_input(name, how.shape, value.dtype));
    if (is_float(value.dtype)) instance.floats.push_back(instance.operands.back());
    inputs[name] = std::move(value);
  }
  const std::vector<Tensor> leaves = instance.operands;
  for (std::size_t i = 0; i < sample.operands.size(); ++i)
    if (sample.operands[i].kind == Draw::Kind::computed) instance.operands[i] = sample.operands[i].compute(leaves);
  std::vector<Operand> operands;
  for (const Tensor& tensor : instance.operands)
    operands.push_back(tensor ? Operand(tensor, "src/model.cpp", 41) : Operand());
  instance.outputs = apply(op, operands, sample.attrs);
  return instance;
}

Tensor weight_input(const std::string& name, const Tensor& like, std::map<std::string, Value>& inputs) {
  const Draw how = within(-1, 1, like.shape());
  inputs[name] = in_type(draw(how, 0, name), like.dtype());
  return tensor_input(name, how.shape, like.dtype());
}

std::vector<Value> run(const Graph& graph, const std::vector<TensorId>& keep,
                       const std::map<std::string, Value>& inputs, ReferencePrecision precision) {
  return evaluate_reference(
      graph, keep, [&](const TensorInfo& leaf) { return inputs.at(leaf.name); }, symbol_values, precision);
}

std::string describe(Op op, std::size_t index, const Case& sample) {
  std::string text = fmt::format("{} #{}", name(op), index);
  for (const Draw& how : sample.operands) {
    const bool shaped = how.kind != Draw::Kind::absent && how.kind != Draw::Kind::computed;
    text += shaped ? fmt::format(" {}{}", name(how.dtype), to_string(how.shape)) : " -";
  }
  return text + " " + attrs_to_json(sample.attrs, false);
}

}  // namespace jerboa::test
