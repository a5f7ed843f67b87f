#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

/// Values of symbols at run time, by name.
using SymbolValues = std::map<std::string, std::int64_t>;

/// One dimension of a shape: a number, or an integer polynomial over named symbols, each with an upper bound.
///
///   Dim t = Dim::symbol("T", 2048);
///   Shape hidden{batch * t, 512};            // "B*T", 512
///
/// Two dims are equal when their canonical polynomials are: T+1 equals 1+T, and (B*T)/T is B. A symbol represents a
/// number from 1 to its bound, so it never broadcasts as a size of 1. Arithmetic that 64 bits cannot hold throws
/// ShapeError.
class Dim {
 public:
  Dim(std::int64_t value = 0) : constant_(value) {}  // NOLINT(google-explicit-constructor): a number is a dim
  static Dim symbol(std::string name, std::int64_t bound);

  bool is_constant() const { return terms_ == nullptr; }
  /// The number; throws ShapeError for a symbolic dim.
  std::int64_t value() const;
  std::int64_t lower_bound() const;
  std::int64_t upper_bound() const;
  /// The number for given symbol values; throws ShapeError that names a symbol without a value, or one out of bounds.
  std::int64_t evaluate(const SymbolValues& values) const;
  std::string str() const;
  /// Symbols in this dim with their bounds.
  void collect_symbols(std::map<std::string, std::int64_t>& bounds) const;
  /// Parses the output of str(). `bounds` has the bound of each symbol; nullopt if the text is not a dim.
  static std::optional<Dim> parse(std::string_view text, const std::map<std::string, std::int64_t>& bounds);

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);
  /// a / b if it leaves no remainder for any values of the symbols.
  friend std::optional<Dim> divide_exactly(const Dim& a, const Dim& b);
  /// floor(a / divisor), for strides; an opaque atom if a is not a multiple of the divisor.
  friend Dim floor_divide(const Dim& a, std::int64_t divisor);

  struct Atom;
  struct Term;

 private:
  struct Range;
  Range range() const;
  static Dim from_terms(std::vector<Term> terms);
  std::vector<Term> terms() const;

  std::int64_t constant_ = 0;
  std::shared_ptr<const std::vector<Term>> terms_;  // null for a number
};

using Shape = std::vector<Dim>;
/// A shape whose symbols are bound.
using Sizes = std::vector<std::int64_t>;

/// "[8, T, 256]"
std::string to_string(const Shape& shape);
std::string to_string(const Sizes& sizes);
Dim element_count(const Shape& shape);
std::int64_t element_count(const Sizes& sizes);
Sizes evaluate(const Shape& shape, const SymbolValues& values);
Shape to_shape(const Sizes& sizes);
/// Row-major strides in elements.
Sizes strides_of(const Sizes& sizes);

}  // namespace jerboa
