#include "generate/json_number.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace jerboa {
namespace {

constexpr std::size_t max_whole_digits = 18;
constexpr std::size_t max_fraction_digits = 17;

// The magnitudes between two bounds, digit by digit. `on_low` means that the digits so far are those of the lower
// bound, so that the next may not be smaller; `on_high` likewise. States with the same remaining suffixes are shared.
class Magnitudes {
 public:
  struct Bound {
    std::uint64_t whole = 0;
    std::string fraction;
    bool exclusive = false;
  };

  Magnitudes(Grammar& grammar, State to, Bound low, std::optional<Bound> high, bool integer, std::uint64_t multiple_of)
      : grammar_(grammar),
        to_(to),
        low_(std::move(low)),
        high_(std::move(high)),
        integer_(integer),
        step_(multiple_of) {}

  void add(State from) {
    const std::string low = std::to_string(low_.whole);
    const std::string high = high_ ? std::to_string(high_->whole) : std::string(max_whole_digits, '9');
    for (std::size_t size = low.size(); size <= std::min(high.size(), max_whole_digits); ++size) {
      size_ = size;
      low_digits_ = size == low.size() ? low : std::string();
      high_digits_ = high_ && size == high.size() ? high : std::string();
      shared_.clear();
      grammar_.add_empty(from, whole(0, !low_digits_.empty(), !high_digits_.empty(), 0));
    }
  }

 private:
  using Key = std::tuple<bool, std::size_t, bool, bool, std::uint64_t>;

  static int digit(const std::string& digits, std::size_t at) { return at < digits.size() ? digits[at] - '0' : 0; }
  static bool rest_is_zero(const std::string& digits, std::size_t at) {
    return at >= digits.size() || digits.find_first_not_of('0', at) == std::string::npos;
  }

  State digit_edge(State from, int value, State target) {
    const auto byte = static_cast<std::uint8_t>('0' + value);
    grammar_.add_bytes(from, target, byte, byte);
    return from;
  }

  State whole(std::size_t at, bool on_low, bool on_high, std::uint64_t rest) {
    const auto [found, added] = shared_.try_emplace(Key{false, at, on_low, on_high, rest}, 0);
    if (!added) return found->second;
    const State state = grammar_.add_state();
    shared_[Key{false, at, on_low, on_high, rest}] = state;
    if (at == size_) {
      finish(state, 0, on_low, on_high, rest);
      if (!integer_) {
        const State point = grammar_.add_state();
        grammar_.add_bytes(state, point, '.', '.');
        grammar_.add_empty(point, fraction(0, on_low, on_high));
      }
      return state;
    }
    const int first = on_low ? digit(low_digits_, at) : at == 0 && size_ > 1 ? 1 : 0;
    const int last = on_high ? digit(high_digits_, at) : 9;
    for (int d = first; d <= last; ++d)
      digit_edge(state, d,
                 whole(at + 1, on_low && d == first, on_high && d == last,
                       (rest * 10 + static_cast<std::uint64_t>(d)) % step_));
    return state;
  }

  State fraction(std::size_t at, bool on_low, bool on_high) {
    const auto [found, added] = shared_.try_emplace(Key{true, at, on_low, on_high, 0}, 0);
    if (!added) return found->second;
    const State state = grammar_.add_state();
    shared_[Key{true, at, on_low, on_high, 0}] = state;
    if (at > 0) finish(state, at, on_low, on_high, 0);
    if (at == max_fraction_digits) return state;
    const int first = on_low ? digit(low_.fraction, at) : 0;
    const int last = on_high ? digit(high_->fraction, at) : 9;
    for (int d = first; d <= last; ++d)
      digit_edge(state, d, fraction(at + 1, on_low && d == first, on_high && d == last));
    return state;
  }

  // The number may end here, after `at` digits of its fraction.
  void finish(State state, std::size_t at, bool on_low, bool on_high, std::uint64_t rest) {
    if (rest != 0) return;
    if (on_low && (low_.exclusive || !rest_is_zero(low_.fraction, at))) return;
    if (on_high && high_->exclusive && rest_is_zero(high_->fraction, at)) return;
    grammar_.add_empty(state, to_);
  }

  Grammar& grammar_;
  State to_;
  Bound low_;
  std::optional<Bound> high_;
  bool integer_;
  std::uint64_t step_;
  std::size_t size_ = 0;
  std::string low_digits_, high_digits_;
  std::map<Key, State> shared_;
};

bool is_zero(const Decimal& number) {
  return number.whole == 0 && number.fraction.find_first_not_of('0') == std::string::npos;
}

}  // namespace

void add_number_range(Grammar& grammar, State from, State to, const NumberRange& range) {
  const auto add_side = [&](State start, Magnitudes::Bound low, std::optional<Magnitudes::Bound> high) {
    Magnitudes(grammar, to, std::move(low), std::move(high), range.integer, range.multiple_of).add(start);
  };
  const bool low_negative = range.low && range.low->negative && !is_zero(*range.low);
  const bool high_negative = range.high && range.high->negative && !is_zero(*range.high);
  if (!high_negative && !(range.high && is_zero(*range.high) && range.high_exclusive)) {
    Magnitudes::Bound low;
    if (range.low && !low_negative) low = {range.low->whole, range.low->fraction, range.low_exclusive};
    std::optional<Magnitudes::Bound> high;
    if (range.high) high = {range.high->whole, range.high->fraction, range.high_exclusive};
    add_side(from, std::move(low), std::move(high));
  }
  if (!range.low || low_negative) {
    const State minus = grammar.add_text(from, "-");
    Magnitudes::Bound low{0, "", true};  // no -0
    if (high_negative) low = {range.high->whole, range.high->fraction, range.high_exclusive};
    std::optional<Magnitudes::Bound> high;
    if (range.low) high = {range.low->whole, range.low->fraction, range.low_exclusive};
    add_side(minus, std::move(low), std::move(high));
  }
}

}  // namespace jerboa
