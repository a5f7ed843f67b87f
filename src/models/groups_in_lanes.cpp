// Quantises one group per vector lane by the method of quantise_group.cpp, compiled once for each instruction set and
// selected at run time. Nothing is added across lanes, and each lane performs the operations of that file in the same
// order, so the bits are equal. That needs plain IEEE 754 arithmetic: CMakeLists.txt compiles both files without
// contractions.
#include "models/groups_in_lanes.h"

#include <array>
#include <cstring>
#include <limits>

#include <jerboa/base/float16.h>

#include "base/convert_floats.h"
#include "base/simd_targets.h"
#include "models/quantise_group.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "models/groups_in_lanes.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace jerboa::models::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Without vector instructions, one group at a time is faster.
std::size_t quantise_here(const float*, std::size_t, DType, GroupMemory) { return 0; }

#else

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToSigned<Floats>;
using V = hn::Vec<Floats>;
constexpr std::size_t lanes = hn::MaxLanes(Floats());

V set(float value) { return hn::Set(Floats(), value); }
V zero() { return hn::Zero(Floats()); }

// Element i of every group.
struct alignas(64) Columns {
  std::array<std::array<float, lanes>, group_size> rows;

  V operator[](std::size_t i) const { return hn::Load(Floats(), rows[i].data()); }
  void set(std::size_t i, V value) { hn::Store(value, Floats(), rows[i].data()); }
};

// Four elements from each of every fourth group, concatenated.
template <class D>
hn::Vec<D> load_fours(D d, const float* values) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::LoadU(d, values);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_fours(half, values + hn::MaxLanes(half) * group_size), load_fours(half, values));
  }
}

V interleave_lower_twos(V a, V b) {
  const hn::RepartitionToWide<Floats> d;
  return hn::BitCast(Floats(), hn::InterleaveLower(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}
V interleave_upper_twos(V a, V b) {
  const hn::RepartitionToWide<Floats> d;
  return hn::BitCast(Floats(), hn::InterleaveUpper(d, hn::BitCast(d, a), hn::BitCast(d, b)));
}

void load(const float* values, Columns& columns) {
  const Floats d;
  for (std::size_t i = 0; i < group_size; i += 4) {
    const auto fours = [&](std::size_t group) HWY_ATTR { return load_fours(d, values + group * group_size + i); };
    const V a = fours(0), b = fours(1), c = fours(2), e = fours(3);
    const V ab = hn::InterleaveLower(d, a, b), ce = hn::InterleaveLower(d, c, e);
    columns.set(i, interleave_lower_twos(ab, ce));
    columns.set(i + 1, interleave_upper_twos(ab, ce));
    const V upper_ab = hn::InterleaveUpper(d, a, b), upper_ce = hn::InterleaveUpper(d, c, e);
    columns.set(i + 2, interleave_lower_twos(upper_ab, upper_ce));
    columns.set(i + 3, interleave_upper_twos(upper_ab, upper_ce));
  }
}

// Adds in the same order as sum_of in quantise_group.cpp.
template <class Term>
V sum_over_group(const Term& term) {
  const auto sum = [&](std::size_t i)
                       HWY_ATTR { return hn::Add(hn::Add(hn::Add(term(i), term(i + 8)), term(i + 16)), term(i + 24)); };
  const auto pair = [&](std::size_t i) HWY_ATTR { return hn::Add(sum(i), sum(i + 4)); };
  return hn::Add(hn::Add(pair(0), pair(1)), hn::Add(pair(2), pair(3)));
}

class RoundingInLanes {
 public:
  RoundingInLanes(V scale, V min, IntegerRange range)
      : inverse_(hn::IfThenZeroElse(hn::Eq(scale, zero()), hn::Div(set(1), scale))),
        min_(min),
        low_(set(range.low)),
        high_(set(range.high)) {}
  // The order of operands matters: Max(NaN, number) returns the number if that comes second.
  V operator()(V value) const { return to_nearest(hn::Min(hn::Max(quotient(value), low_), high_)); }
  // For values that are known to round to integers in the range.
  V unbounded(V value) const { return to_nearest(quotient(value)); }

 private:
  V quotient(V value) const { return hn::Mul(hn::Sub(value, min_), inverse_); }
  static V to_nearest(V value) {
    const V shift = set(0x1.8p23F);
    return hn::Sub(hn::Add(value, shift), shift);
  }

  V inverse_, min_, low_, high_;
};

// No default member initialisers here and below: constructors that compilers generate lack the target attribute.
struct FitInLanes {
  V scale, min, error;
};

template <bool with_min>
class FittingInLanes {
 public:
  explicit FittingInLanes(const Columns& values)
      : share_(set(1.0F / group_size)),
        middle_(zero()),
        best_{zero(), zero(), set(std::numeric_limits<float>::infinity())} {
    V least = values[0], greatest = values[0];
    for (std::size_t i = 1; i < group_size; ++i) {
      const V value = values[i];
      least = hn::IfThenElse(hn::Lt(value, least), value, least);
      greatest = hn::IfThenElse(hn::Lt(greatest, value), value, greatest);
    }
    if constexpr (with_min) {
      middle_ = hn::Div(hn::Add(least, greatest), set(2));
      step_ = hn::Div(hn::Sub(greatest, least), set(15));
    } else {
      const V below = hn::Abs(least), above = hn::Abs(greatest);
      step_ = hn::Div(hn::IfThenElse(hn::Lt(below, above), above, below), set(127));
    }
    for (std::size_t i = 0; i < group_size; ++i) values_.set(i, with_min ? hn::Sub(values[i], middle_) : values[i]);
    sum_ = sum_over_group([&](std::size_t i) HWY_ATTR { return values_[i]; });
    squares_ = sum_over_group([&](std::size_t i) HWY_ATTR { return hn::Mul(values_[i], values_[i]); });
  }

  FitInLanes best() {
    if constexpr (with_min) {
      if (is_in_middle())
        try_ranges<false>();
      else
        try_ranges<true>();
      for (int time = 0; time < refinements; ++time)
        if (!consider<true>(best_.scale, best_.min)) break;
    } else {
      consider<true>(step_, zero());
      consider<true>(best_.scale, best_.min);
    }
    const auto is_constant = hn::Eq(step_, zero());
    best_.scale = hn::IfThenZeroElse(is_constant, best_.scale);
    best_.min = hn::IfThenElse(is_constant, middle_, hn::Add(best_.min, middle_));
    return best_;
  }

 private:
  static constexpr IntegerRange range = range_of(with_min ? DType::i4 : DType::i8);

  // Whether, in every group, the values reach as far below their middle as above it. They do unless they are so close
  // together, so small or so large that f32 loses it. If so, try_ranges needs no clamping: its integers are at most
  // 0.43 out of range.
  bool is_in_middle() const {
    V least = values_[0], greatest = values_[0];
    for (std::size_t i = 1; i < group_size; ++i) {
      least = hn::Min(least, values_[i]);
      greatest = hn::Max(greatest, values_[i]);
    }
    const V most = hn::Mul(set(7.51F), step_);
    const auto in_middle = hn::And(hn::Le(greatest, most), hn::Le(hn::Neg(most), least));
    const auto is_usual = hn::And(hn::Le(set(1e-30F), step_), hn::Le(step_, set(1e30F)));
    return hn::AllTrue(Floats(), hn::Or(hn::And(in_middle, is_usual), hn::Eq(step_, zero())));
  }

  template <bool is_bounded>
  void try_ranges() {
    for (const float below : range_margins)
      for (const float above : range_margins) {
        const V scale = hn::Mul(set((15 + below + above) / 15), step_);
        consider<is_bounded>(scale, hn::Sub(hn::Mul(set(-7.5F - below), step_), hn::Mul(set(range.low), scale)));
      }
  }

  // Sums of the integers, of their squares and of their products with the values. The first two are whole numbers below
  // 2^24, so neither the order of addition nor fused multiply-adds change them.
  struct Sums {
    V sum, square, product;
  };

  template <bool is_bounded>
  Sums sums_of_pair(const RoundingInLanes& rounding, std::size_t pair) const {
    Sums sums{zero(), zero(), zero()};
    const auto product = [&](std::size_t i) HWY_ATTR {
      const V value = values_[i], integer = is_bounded ? rounding(value) : rounding.unbounded(value);
      sums.sum = hn::Add(sums.sum, integer);
      sums.square = hn::MulAdd(integer, integer, sums.square);
      return hn::Mul(integer, value);
    };
    V parts[2];
    for (const std::size_t half : {0, 1}) {
      const std::size_t i = pair + 4 * half;
      parts[half] = product(i);
      for (const std::size_t next : {8, 16, 24}) parts[half] = hn::Add(parts[half], product(i + next));
    }
    sums.product = hn::Add(parts[0], parts[1]);
    return sums;
  }

  static Sums added(const Sums& a, const Sums& b) {
    return {hn::Add(a.sum, b.sum), hn::Add(a.square, b.square), hn::Add(a.product, b.product)};
  }

  // Whether it is better in any lane.
  template <bool is_bounded>
  bool consider(V scale, V min) {
    const RoundingInLanes rounding(scale, min, range);
    const Sums first = added(sums_of_pair<is_bounded>(rounding, 0), sums_of_pair<is_bounded>(rounding, 1));
    const auto [sum, square, product] =
        added(first, added(sums_of_pair<is_bounded>(rounding, 2), sums_of_pair<is_bounded>(rounding, 3)));
    FitInLanes found{zero(), zero(), zero()};
    V spread = square;
    if constexpr (with_min) {
      spread = hn::Sub(square, hn::Mul(hn::Mul(sum, sum), share_));
      found.scale = hn::Div(hn::Sub(product, hn::Mul(hn::Mul(sum_, sum), share_)), spread);
      found.min = hn::Mul(hn::Sub(sum_, hn::Mul(found.scale, sum)), share_);
    } else {
      found.scale = hn::Div(product, spread);
    }
    found.error = hn::Sub(hn::Sub(squares_, hn::Mul(found.scale, product)), hn::Mul(found.min, sum_));
    const auto is_better = hn::And(hn::Gt(spread, zero()), hn::Lt(found.error, best_.error));
    best_.scale = hn::IfThenElse(is_better, found.scale, best_.scale);
    best_.min = hn::IfThenElse(is_better, found.min, best_.min);
    best_.error = hn::IfThenElse(is_better, found.error, best_.error);
    return !hn::AllFalse(Floats(), is_better);
  }

  V share_;  // 1 / group_size: exact, so multiplying by it equals dividing
  Columns values_;
  V middle_, step_, sum_, squares_;
  FitInLanes best_;
};

// Rounds to f16, stores the bits, and returns the rounded values.
V store_f16(V values, std::uint16_t* to) {
  alignas(64) std::array<float, lanes> wide;
  hn::Store(values, Floats(), wide.data());
  const auto bytes = std::as_writable_bytes(std::span(to, lanes));
  detail::narrow_to_f16(wide, bytes);
  detail::widen_f16(bytes, wide);
  return hn::Load(Floats(), wide.data());
}

// Stores four bytes of each group as a word, the first in the lowest bits. Two bytes are an exact float.
template <class Byte>
void store_words(std::size_t group_bytes, const Byte& byte, std::uint8_t* to) {
  const auto two_bytes = [&](std::size_t i)
                             HWY_ATTR { return hn::ConvertTo(Words(), hn::MulAdd(byte(i + 1), set(256), byte(i))); };
  alignas(64) std::array<std::int32_t, lanes> words;
  for (std::size_t i = 0; i < group_bytes; i += sizeof(words[0])) {
    hn::Store(hn::Or(two_bytes(i), hn::ShiftLeft<16>(two_bytes(i + 2))), Words(), words.data());
    for (std::size_t group = 0; group < lanes; ++group)
      std::memcpy(to + group * group_bytes + i, &words[group], sizeof(words[0]));
  }
}

template <bool with_min>
void quantise_some(const float* values, const GroupMemory& to) {
  Columns columns;
  load(values, columns);
  const FitInLanes best = FittingInLanes<with_min>(columns).best();
  const V scale = store_f16(best.scale, to.scales);
  constexpr IntegerRange range = range_of(with_min ? DType::i4 : DType::i8);
  if constexpr (with_min) {
    const RoundingInLanes rounding(scale, best.min, range);
    const V rest = sum_over_group([&](std::size_t i)
                                      HWY_ATTR { return hn::Sub(columns[i], hn::Mul(rounding(columns[i]), scale)); });
    const V mean = hn::Mul(rest, set(1.0F / group_size));
    const V min = hn::IfThenElse(hn::IsNaN(mean), set(f16_to_f32(f16_nan)), mean);
    const RoundingInLanes stored(scale, store_f16(min, to.mins), range);
    const auto nibble = [&](std::size_t i) HWY_ATTR { return hn::Add(stored(columns[i]), set(8)); };
    store_words(
        group_size / 2,
        [&](std::size_t i) HWY_ATTR { return hn::MulAdd(nibble(i + group_size / 2), set(16), nibble(i)); },
        to.integers);
  } else {
    const RoundingInLanes stored(scale, zero(), range);
    // Two's complement bytes of negative numbers.
    store_words(
        group_size,
        [&](std::size_t i) HWY_ATTR {
          const V integer = stored(columns[i]);
          return hn::IfThenElse(hn::Lt(integer, zero()), hn::Add(integer, set(256)), integer);
        },
        to.integers);
  }
}

std::size_t quantise_here(const float* values, std::size_t groups, DType dtype, GroupMemory to) {
  const std::size_t group_bytes = group_size * static_cast<std::size_t>(bits(dtype)) / 8;
  std::size_t done = 0;
  for (; done + lanes <= groups; done += lanes) {
    if (dtype == DType::i4)
      quantise_some<true>(values + done * group_size, to);
    else
      quantise_some<false>(values + done * group_size, to);
    to.integers += lanes * group_bytes;
    to.scales += lanes;
    if (to.mins != nullptr) to.mins += lanes;
  }
  return done;
}

#endif

}  // namespace
}  // namespace jerboa::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::models {
namespace {

HWY_EXPORT(quantise_here);

}  // namespace

std::size_t quantise_in_lanes(std::span<const float> values, DType dtype, const GroupMemory& to) {
  return HWY_DYNAMIC_DISPATCH(quantise_here)(values.data(), values.size() / group_size, dtype, to);
}

}  // namespace jerboa::models
#endif
