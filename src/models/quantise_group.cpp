#include "models/quantise_group.h"

#include <cmath>
#include <limits>

#include <jerboa/base/float16.h>

// Loops run over a whole group, with sums in several lanes, so that compilers turn them into vector instructions.
namespace jerboa::models {
namespace {

constexpr std::size_t lane_count = 8;
using Lanes = std::array<float, lane_count>;

float sum_of(const Lanes& lane_sums) {
  float sum = 0;
  for (const float part : lane_sums) sum += part;
  return sum;
}

struct Fit {
  float scale = 0, min = 0, error = std::numeric_limits<float>::infinity();
};

// Some weights, of which it finds the scale and the minimum, if there is to be one, with the least squared error.
class Fitting {
 public:
  Fitting(const Group& values, DType dtype) : values_(values), range_(range_of(dtype)), with_min_(dtype == DType::i4) {
    const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
    if (with_min_) {
      middle_ = (*least + *greatest) / 2;
      for (float& value : values_) value -= middle_;  // for less rounding in the sums below
    }
    Lanes sums{}, squares{};
    for (std::size_t i = 0; i < group_size; i += lane_count)
      for (std::size_t lane = 0; lane < lane_count; ++lane) {
        sums[lane] += values_[i + lane];
        squares[lane] += values_[i + lane] * values_[i + lane];
      }
    sum_ = sum_of(sums);
    squares_ = sum_of(squares);
    step_ = with_min_ ? (*greatest - *least) / 15 : std::max(std::abs(*least), std::abs(*greatest)) / 127;
  }

  Fit best() {
    if (step_ == 0) return {0, middle_, 0};
    if (with_min_) {
      // Steps for which the integers span a little more than the values, or a little less.
      for (const float factor : {0.8F, 0.86F, 0.91F, 0.95F, 1.0F, 1.04F, 1.08F})
        consider(step_ * factor, step_ * factor / 2);
    } else {
      consider(step_, 0);
    }
    consider(best_.scale, best_.min);
    return {best_.scale, best_.min + middle_, best_.error};
  }

 private:
  // The best fit to the integers that these would give.
  void consider(float scale, float min) {
    const Rounding rounding(scale, min, range_);
    Lanes sums{}, squares{}, products{};
    for (std::size_t i = 0; i < group_size; i += lane_count)
      for (std::size_t lane = 0; lane < lane_count; ++lane) {
        const float integer = rounding(values_[i + lane]);
        sums[lane] += integer;
        squares[lane] += integer * integer;
        products[lane] += integer * values_[i + lane];
      }
    const float sum = sum_of(sums), square = sum_of(squares), product = sum_of(products);
    Fit found;
    const float spread = with_min_ ? square - sum * sum / group_size : square;
    if (spread == 0) return;
    found.scale = (with_min_ ? product - sum_ * sum / group_size : product) / spread;
    found.min = with_min_ ? (sum_ - found.scale * sum) / group_size : 0;
    found.error = squares_ - found.scale * product - found.min * sum_;
    if (found.error < best_.error) best_ = found;
  }

  Group values_;
  IntegerRange range_;
  bool with_min_;
  float middle_ = 0, step_ = 0, sum_ = 0, squares_ = 0;
  Fit best_;
};

}  // namespace

GroupScale fit_group(const Group& values, DType dtype) {
  const Fit best = Fitting(values, dtype).best();
  GroupScale stored{f32_to_f16(best.scale), 0};
  if (dtype == DType::i8) return stored;
  // What is best for the scale as it is stored.
  const float scale = f16_to_f32(stored.scale);
  const Rounding rounding(scale, best.min, range_of(dtype));
  Lanes rest{};
  for (std::size_t i = 0; i < group_size; i += lane_count)
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      rest[lane] += values[i + lane] - rounding(values[i + lane]) * scale;
  stored.min = f32_to_f16(sum_of(rest) / group_size);
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
