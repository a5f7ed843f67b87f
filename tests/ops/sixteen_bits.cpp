#include "ops/sixteen_bits.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <random>

#include <jerboa/base/float16.h>
#include <jerboa/lower/program.h>

#include "lower/expand.h"

namespace jerboa::test {
namespace {

constexpr int runs = 16;
// The error of f32 arithmetic itself, as in the tests of f32.
constexpr double f32_relative = 1e-4, f32_absolute = 2e-5;

bool has_16_bits(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

double from_bits(DType dtype, std::uint16_t bits) { return dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits); }

// The neighbour above or below a value in the type; the value itself if the type represents it.
double neighbour(double value, DType dtype, bool up) {
  const auto single = static_cast<float>(value);
  const std::uint16_t bits = dtype == DType::f16 ? f32_to_f16(single) : f32_to_bf16(single);
  const double nearest = from_bits(dtype, bits);
  if (nearest == value || std::isnan(nearest) || (nearest > value) == up) return nearest;
  // Magnitudes are ordered as their bits are; past zero the sign changes.
  const bool negative = (bits & 0x8000u) != 0, away = negative != up;
  if (!away && (bits & 0x7fffu) == 0) return from_bits(dtype, static_cast<std::uint16_t>((bits ^ 0x8000u) + 1));
  return from_bits(dtype, static_cast<std::uint16_t>(away ? bits + 1 : bits - 1));
}

// The spacing of the type's values around this one: at most two unit roundoffs of its magnitude.
double spacing(double value, DType dtype) {
  return has_16_bits(dtype) ? neighbour(value, dtype, true) - neighbour(value, dtype, false) : 0;
}

}  // namespace

SixteenBits::SixteenBits(const Sample& sample) {
  const auto exact = reference_outputs(sample, [](Value&) {});
  for (std::size_t i = 0; i < exact.size(); ++i)
    outputs_.push_back({sample.graph.outputs[i].name, exact[i], std::vector<double>(exact[i].data.size(), 0)});
  const Sample parts{detail::expand(sample.graph, Target()), sample.inputs};
  for (int run = 0; run < runs; ++run) {
    // Two runs draw the same numbers and move values in opposite directions, so that each value is moved both ways.
    std::mt19937 engine(static_cast<unsigned>(run / 2));
    const auto moved = reference_outputs(parts, [&](Value& value) {
      if (!has_16_bits(value.dtype)) return;
      for (double& element : value.data)
        element = neighbour(element, value.dtype, (engine() % 2 == 0) != (run % 2 == 0));
    });
    for (std::size_t i = 0; i < moved.size(); ++i)
      for (std::size_t e = 0; e < moved[i].data.size(); ++e) {
        double& error = outputs_[i].error[e];
        const double move = std::abs(moved[i].data[e] - exact[i].data[e]);
        error = std::isnan(move) ? move : std::max(error, move);
      }
  }
}

std::optional<std::string> SixteenBits::difference(const TensorMap& computed) const {
  for (const auto& [name, exact, error] : outputs_) {
    const HostTensor& tensor = computed.at(name);
    if (tensor.shape() != exact.shape || tensor.dtype() != exact.dtype) return name + " has another type";
    const Value values = to_value(tensor);
    for (std::size_t e = 0; e < error.size(); ++e) {
      if (!std::isfinite(exact.data[e]) || !std::isfinite(error[e]))
        return fmt::format("{}: element {} leaves the range of {}", name, e, jerboa::name(exact.dtype));
      double bound = 3 * error[e] + spacing(exact.data[e], exact.dtype);
      if (is_float(exact.dtype)) bound += f32_absolute + f32_relative * std::abs(exact.data[e]);
      if (!(std::abs(values.data[e] - exact.data[e]) <= bound))
        return fmt::format("{}: element {} is {:.7g} instead of {:.7g} ± {:.2g}", name, e, values.data[e],
                           exact.data[e], bound);
    }
  }
  return std::nullopt;
}

std::vector<Sample> sixteen_bit_samples(Op op, const Case& sample, DType floats) {
  const auto& operands = sample.operands;
  const bool has_floats = std::any_of(operands.begin(), operands.end(), [](const Draw& operand) {
    return operand.kind != Draw::Kind::absent && operand.kind != Draw::Kind::computed && is_float(operand.dtype);
  });
  if (!has_floats) return {};
  std::vector<Sample> samples{forward_sample_of(op, sample, floats)};
  if (auto with_gradient = gradient_sample_of(op, sample, floats)) samples.push_back(std::move(*with_gradient));
  return samples;
}

}  // namespace jerboa::test
