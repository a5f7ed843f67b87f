#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/models/quantise.h>

// Loops run over a whole group, with sums in several lanes, so that compilers turn them into vector instructions.
namespace jerboa::models {
namespace {

constexpr std::size_t group_size = quantised_group;
using Group = std::array<float, group_size>;

constexpr std::size_t lane_count = 8;
using Lanes = std::array<float, lane_count>;

float sum_of(const Lanes& lane_sums) {
  float sum = 0;
  for (const float part : lane_sums) sum += part;
  return sum;
}

// To the nearest whole number, ties to even, for what lies between -2^22 and 2^22: not every x86 CPU has a vector
// instruction for std::nearbyint.
float rounded(float value) {
  constexpr float shift = 0x1.8p23F;
  return (value + shift) - shift;
}

struct IntegerRange {
  float low, high;
};
constexpr IntegerRange range_of(DType dtype) {
  return dtype == DType::i8 ? IntegerRange{-127, 127} : IntegerRange{-8, 7};
}

// The integers closest to (value - min) / scale.
class Rounding {
 public:
  Rounding(float scale, float min, IntegerRange range)
      : inverse_(scale == 0 ? 0 : 1 / scale), min_(min), range_(range) {}
  float operator()(float value) const {
    // In this order, so that NaN becomes a number.
    return rounded(std::min(range_.high, std::max(range_.low, (value - min_) * inverse_)));
  }

 private:
  float inverse_, min_;
  IntegerRange range_;
};

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

// One group: its integers in the order that DType describes, and its scale and minimum rounded to f16. The integers
// follow from what is stored.
void quantise_group(const Group& values, DType dtype, std::uint8_t* to, std::uint16_t& scale, std::uint16_t* min) {
  const Fit best = Fitting(values, dtype).best();
  scale = f32_to_f16(best.scale);
  const float stored_scale = f16_to_f32(scale);
  float stored_min = 0;
  if (min != nullptr) {
    const Rounding rounding(stored_scale, best.min, range_of(dtype));
    Lanes rest{};
    for (std::size_t i = 0; i < group_size; i += lane_count)
      for (std::size_t lane = 0; lane < lane_count; ++lane)
        rest[lane] += values[i + lane] - rounding(values[i + lane]) * stored_scale;
    *min = f32_to_f16(sum_of(rest) / group_size);
    stored_min = f16_to_f32(*min);
  }
  const Rounding rounding(stored_scale, stored_min, range_of(dtype));
  Group integers;
  for (std::size_t i = 0; i < group_size; ++i) integers[i] = rounding(values[i]);
  if (dtype == DType::i8) {
    for (std::size_t i = 0; i < group_size; ++i)
      to[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(integers[i]));
    return;
  }
  const auto nibble = [&](std::size_t i) { return static_cast<unsigned>(static_cast<int>(integers[i]) + 8); };
  for (std::size_t i = 0; i < group_size / 2; ++i)
    to[i] = static_cast<std::uint8_t>(nibble(i) | nibble(i + group_size / 2) << 4);
}

// Calls work(first, end) for parts of [0, count), on as many threads as there are cores.
template <class Work>
void in_parallel(std::int64_t count, std::int64_t least, const Work& work) {
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(count / least, 1, cores);
  std::vector<std::thread> threads;
  for (std::int64_t part = 1; part < parts; ++part) {
    const std::int64_t first = count * part / parts, end = count * (part + 1) / parts;
    try {
      threads.emplace_back([&work, first, end] { work(first, end); });
    } catch (const std::system_error&) {  // no more threads, or none at all
      work(first, end);
    }
  }
  work(std::int64_t{0}, count / parts);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype) {
  if (dtype != DType::i8 && dtype != DType::i4)
    throw UsageError(fmt::format("weights can be quantised to int8 or int4, not to {}", name(dtype)));
  if (in % quantised_group != 0 || std::ssize(values) != out * in)
    throw UsageError(fmt::format("{} weights cannot be quantised as [{}, {}]: the row length must be a multiple of {}",
                                 values.size(), out, in, quantised_group));
  const std::vector<std::int64_t> shape{out, in / quantised_group};
  Quantised result{HostTensor(dtype, {out, in}), HostTensor(DType::f16, shape), std::nullopt};
  if (dtype == DType::i4) result.mins.emplace(DType::f16, shape);
  auto* weights = reinterpret_cast<std::uint8_t*>(result.weight.bytes().data());
  std::uint16_t* scales = result.scales.as<std::uint16_t>().data();
  std::uint16_t* mins = result.mins ? result.mins->as<std::uint16_t>().data() : nullptr;
  const auto group_bytes = static_cast<std::size_t>(quantised_group * bits(dtype) / 8);
  constexpr std::int64_t least_groups = 1024;  // for which a thread pays
  in_parallel(out * in / quantised_group, least_groups, [&](std::int64_t first, std::int64_t end) {
    for (auto number = static_cast<std::size_t>(first); number < static_cast<std::size_t>(end); ++number) {
      Group one;
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(number * group_size), group_size, one.begin());
      quantise_group(one, dtype, weights + number * group_bytes, scales[number],
                     mins == nullptr ? nullptr : mins + number);
    }
  });
  return result;
}

}  // namespace jerboa::models
