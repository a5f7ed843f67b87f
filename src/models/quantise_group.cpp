#include "models/quantise_group.h"

#include <cmath>
#include <limits>

#include <jerboa/base/float16.h>

// Each loop does one thing with a whole group and has no branches, so that compilers vectorise it.
namespace jerboa::models {
namespace {

// Adds in eight lanes, in an order that does not depend on the instruction set.
float sum_of(const Group& values) {
  constexpr std::size_t lanes = 8;
  static_assert(group_size == 4 * lanes);
  std::array<float, lanes> sums;
  for (std::size_t i = 0; i < lanes; ++i)
    sums[i] = values[i] + values[i + lanes] + values[i + 2 * lanes] + values[i + 3 * lanes];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

template <class Term>
float sum_over_group(Term term) {
  Group terms;
  for (std::size_t i = 0; i < group_size; ++i) terms[i] = term(i);
  return sum_of(terms);
}

struct Fit {
  float scale = 0, min = 0, error = std::numeric_limits<float>::infinity();
};

// Finds the scale and, if there is one, the minimum of a group with the least squared error.
class Fitting {
 public:
  Fitting(const Group& values, DType dtype, const Group* importance)
      : values_(values), range_(range_of(dtype)), with_min_(dtype == DType::i4) {
    if (importance != nullptr)
      importance_ = *importance;
    else
      importance_.fill(1);
    float least = values[0], greatest = values[0];  // compared in an order that gives NaN a defined result
    for (const float value : values) {
      least = value < least ? value : least;
      greatest = greatest < value ? value : greatest;
    }
    if (with_min_) {
      middle_ = (least + greatest) / 2;
      for (float& value : values_) value -= middle_;  // reduces rounding in the sums below
    }
    total_ = sum_over_group([&](std::size_t i) { return importance_[i]; });
    sum_ = sum_over_group([&](std::size_t i) { return importance_[i] * values_[i]; });
    squares_ = sum_over_group([&](std::size_t i) { return importance_[i] * values_[i] * values_[i]; });
    step_ = with_min_ ? (greatest - least) / 15 : std::max(std::abs(least), std::abs(greatest)) / 127;
  }

  Fit best() {
    if (step_ == 0) return {0, middle_, 0};
    if (with_min_) {
      for (const float below : range_margins)
        for (const float above : range_margins) {
          const float scale = (15 + below + above) / 15 * step_;
          consider(scale, (-7.5F - below) * step_ - range_.low * scale);
        }
      refine();
    } else {
      consider(step_, 0);
      consider(best_.scale, best_.min);
    }
    return {best_.scale, best_.min + middle_, best_.error};
  }

 private:
  void refine() {
    for (int time = 0; time < refinements; ++time) {
      const float error = best_.error;
      consider(best_.scale, best_.min);
      if (best_.error == error) return;
    }
  }

  // Computes the best scale and minimum for the integers that these ones give, and keeps them if the error is smaller.
  void consider(float scale, float min) {
    const Rounding rounding(scale, min, range_);
    Group integers, weighted, squares, products;
    for (std::size_t i = 0; i < group_size; ++i) integers[i] = rounding(values_[i]);
    for (std::size_t i = 0; i < group_size; ++i) weighted[i] = integers[i] * importance_[i];
    for (std::size_t i = 0; i < group_size; ++i) squares[i] = weighted[i] * integers[i];
    for (std::size_t i = 0; i < group_size; ++i) products[i] = weighted[i] * values_[i];
    const float sum = sum_of(weighted), square = sum_of(squares), product = sum_of(products);
    Fit found;
    const float spread = with_min_ ? square - sum * sum / total_ : square;
    if (!(spread > 0)) return;
    found.scale = (with_min_ ? product - sum_ * sum / total_ : product) / spread;
    found.min = with_min_ ? (sum_ - found.scale * sum) / total_ : 0;
    found.error = squares_ - found.scale * product - found.min * sum_;
    if (found.error < best_.error) best_ = found;
  }

  Group values_, importance_;
  IntegerRange range_;
  bool with_min_;
  float middle_ = 0, step_ = 0, total_ = 0, sum_ = 0, squares_ = 0;
  Fit best_;
};

}  // namespace

GroupScale fit_group(const Group& values, DType dtype, const Group* importance) {
  const Fit best = Fitting(values, dtype, importance).best();
  GroupScale stored{f32_to_f16(best.scale), 0};
  if (dtype == DType::i8) return stored;
  // Refits the minimum to the scale as it is stored, rounded to f16.
  const float scale = f16_to_f32(stored.scale);
  const Rounding rounding(scale, best.min, range_of(dtype));
  const auto importance_of = [&](std::size_t i) { return importance == nullptr ? 1.0F : (*importance)[i]; };
  const float rest =
      sum_over_group([&](std::size_t i) { return importance_of(i) * (values[i] - rounding(values[i]) * scale); });
  const float min = rest / sum_over_group(importance_of);
  stored.min = std::isnan(min) ? f16_nan : f32_to_f16(min);
  return stored;
}

void pack_group(const Group& integers, DType dtype, std::uint8_t* to) {
  if (dtype == DType::i8) {
    for (std::size_t i = 0; i < group_size; ++i)
      to[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(integers[i]));
    return;
  }
  const auto nibble = [&](std::size_t i) { return static_cast<unsigned>(static_cast<int>(integers[i]) + 8); };
  for (std::size_t i = 0; i < group_size / 2; ++i)
    to[i] = static_cast<std::uint8_t>(nibble(i) | nibble(i + group_size / 2) << 4);
}

}  // namespace jerboa::models
