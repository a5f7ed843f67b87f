#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/dim.h>
#include <jerboa/models/quantise.h>

#include "base/in_parallel.h"
#include "models/quantise_group.h"
#include "models/round_for_products.h"

namespace jerboa::models {

Quantised::Quantised(const std::vector<std::int64_t>& shape, DType dtype) {
  if (dtype != DType::i8 && dtype != DType::i4)
    throw UsageError(fmt::format("weights can be quantised to int8 or int4, not to {}", name(dtype)));
  if (shape.empty() || shape.back() % quantised_group != 0)
    throw UsageError(fmt::format("weights of {} cannot be quantised: the row length must be a multiple of {}",
                                 to_string(shape), quantised_group));
  std::vector<std::int64_t> groups = shape;
  groups.back() /= quantised_group;
  weight = HostTensor(dtype, shape);
  scales = HostTensor(DType::f16, groups);
  if (dtype == DType::i4) mins.emplace(DType::f16, groups);
}

QuantisedView Quantised::view() {
  return {weight.dtype(), weight.bytes(), scales.as<std::uint16_t>(),
          mins ? mins->as<std::uint16_t>() : std::span<std::uint16_t>()};
}

void quantise_rows(std::span<const float> values, std::int64_t first_row, Quantised& to, const ProductInputs* inputs) {
  const std::int64_t in = to.weight.shape().back(), count = std::ssize(values) / quantised_group;
  if (std::ssize(values) % in != 0 || first_row * in + std::ssize(values) > to.weight.size())
    throw UsageError(fmt::format("{} weights are not whole rows of {} from row {} on", values.size(),
                                 to_string(to.weight.shape()), first_row));
  const GroupWriter writer(to.view(), first_row * in / quantised_group);
  if (inputs != nullptr) return round_for_products(values, in, *inputs, writer);
  constexpr std::int64_t least_groups = 1024;  // fewer do not pay for a thread
  detail::in_parallel(count, least_groups, [&](std::int64_t first, std::int64_t end) {
    const auto part = values.subspan(static_cast<std::size_t>(first * quantised_group),
                                     static_cast<std::size_t>((end - first) * quantised_group));
    quantise_groups(part, first, writer);
  });
}

Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype) {
  Quantised result({out, in}, dtype);
  if (std::ssize(values) != out * in)
    throw UsageError(fmt::format("{} weights are not [{}, {}]", values.size(), out, in));
  quantise_rows(values, 0, result);
  return result;
}

}  // namespace jerboa::models
