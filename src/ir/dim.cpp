#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/dim.h>

namespace jerboa {

// A symbol, or floor(numerator / divisor), which is opaque to the algebra. Atoms are compared by name.
struct Dim::Atom {
  std::string name;
  std::int64_t bound = 0;
  std::optional<Dim> numerator;
  std::int64_t divisor = 1;
};

struct Dim::Term {
  std::int64_t coefficient = 0;
  std::vector<std::shared_ptr<const Atom>> atoms;  // sorted by name

  bool same_atoms(const Term& other) const {
    return std::equal(atoms.begin(), atoms.end(), other.atoms.begin(), other.atoms.end(),
                      [](const auto& a, const auto& b) { return a->name == b->name; });
  }
};

namespace {

// Arithmetic that throws on 64-bit overflow.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw ShapeError(fmt::format("a size of {} + {} is too large", a, b));
  return result;
}
std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw ShapeError(fmt::format("a size of {} * {} is too large", a, b));
  return result;
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t divisor) { return a / divisor - (a % divisor < 0 ? 1 : 0); }

bool before(const std::vector<std::shared_ptr<const Dim::Atom>>& a,
            const std::vector<std::shared_ptr<const Dim::Atom>>& b) {
  if (a.size() != b.size()) return a.size() > b.size();  // higher powers first, the number last
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](const auto& x, const auto& y) { return x->name < y->name; });
}

}  // namespace

Dim Dim::symbol(std::string name, std::int64_t bound) {
  if (bound < 1) throw ShapeError(fmt::format("symbol {}: its upper bound must be at least 1, not {}", name, bound));
  const bool is_name =
      !name.empty() && std::isalpha(static_cast<unsigned char>(name[0])) != 0 &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  if (!is_name)
    throw ShapeError(fmt::format("symbol '{}': a name is a letter followed by letters, digits and _", name));
  auto atom = std::make_shared<Atom>();
  atom->name = std::move(name);
  atom->bound = bound;
  return from_terms({Term{1, {std::move(atom)}}});
}

std::vector<Dim::Term> Dim::terms() const {
  if (terms_) return *terms_;
  if (constant_ == 0) return {};
  return {Term{constant_, {}}};
}

Dim Dim::from_terms(std::vector<Term> terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return before(a.atoms, b.atoms); });
  std::vector<Term> merged;
  for (auto& term : terms) {
    if (!merged.empty() && merged.back().same_atoms(term))
      merged.back().coefficient = plus(merged.back().coefficient, term.coefficient);
    else
      merged.push_back(std::move(term));
  }
  std::erase_if(merged, [](const Term& term) { return term.coefficient == 0; });
  if (merged.empty()) return Dim(0);
  if (merged.size() == 1 && merged[0].atoms.empty()) return Dim(merged[0].coefficient);
  Dim result;
  result.terms_ = std::make_shared<const std::vector<Term>>(std::move(merged));
  return result;
}

std::int64_t Dim::value() const {
  if (!is_constant()) throw ShapeError(fmt::format("the size {} is symbolic where a number is needed", str()));
  return constant_;
}

struct Dim::Range {
  std::int64_t low = 0, high = 0;

  static Range product(const Range& a, const Range& b) {
    const auto corners = {times(a.low, b.low), times(a.low, b.high), times(a.high, b.low), times(a.high, b.high)};
    return {std::min(corners), std::max(corners)};
  }
};

// Computed term by term, so it may be wider than the range of the whole.
Dim::Range Dim::range() const {
  if (is_constant()) return {constant_, constant_};
  Range total;
  for (const Term& term : *terms_) {
    Range part{term.coefficient, term.coefficient};
    for (const auto& atom : term.atoms) {
      Range ranges{1, atom->bound};
      if (atom->numerator) {
        const Range numerator = atom->numerator->range();
        ranges = {floor_quotient(numerator.low, atom->divisor), floor_quotient(numerator.high, atom->divisor)};
      }
      part = Range::product(part, ranges);
    }
    total = {plus(total.low, part.low), plus(total.high, part.high)};
  }
  return total;
}

std::int64_t Dim::lower_bound() const { return range().low; }
std::int64_t Dim::upper_bound() const { return range().high; }

std::int64_t Dim::evaluate(const SymbolValues& values) const {
  if (is_constant()) return constant_;
  std::int64_t total = 0;
  for (const Term& term : *terms_) {
    std::int64_t product = term.coefficient;
    for (const auto& atom : term.atoms) {
      if (atom->numerator) {
        product = times(product, floor_quotient(atom->numerator->evaluate(values), atom->divisor));
        continue;
      }
      const auto found = values.find(atom->name);
      if (found == values.end()) throw ShapeError(fmt::format("symbol {} has no value", atom->name));
      if (found->second < 1 || found->second > atom->bound)
        throw ShapeError(fmt::format("symbol {} = {} is outside 1 to {}", atom->name, found->second, atom->bound));
      product = times(product, found->second);
    }
    total = plus(total, product);
  }
  return total;
}

std::string Dim::str() const {
  if (is_constant()) return std::to_string(constant_);
  std::string text;
  for (const Term& term : *terms_) {
    const std::int64_t magnitude = std::abs(term.coefficient);
    if (!text.empty() || term.coefficient < 0) text += term.coefficient < 0 ? "-" : "+";
    std::string product = magnitude == 1 && !term.atoms.empty() ? "" : std::to_string(magnitude);
    for (const auto& atom : term.atoms) product += (product.empty() ? "" : "*") + atom->name;
    text += product;
  }
  return text;
}

void Dim::collect_symbols(std::map<std::string, std::int64_t>& bounds) const {
  if (is_constant()) return;
  for (const Term& term : *terms_)
    for (const auto& atom : term.atoms) {
      if (atom->numerator)
        atom->numerator->collect_symbols(bounds);
      else
        bounds.emplace(atom->name, atom->bound);
    }
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return {plus(a.constant_, b.constant_)};
  auto terms = a.terms();
  auto more = b.terms();
  terms.insert(terms.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  return Dim::from_terms(std::move(terms));
}

Dim operator-(const Dim& a, const Dim& b) { return a + Dim(-1) * b; }

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_constant() && b.is_constant()) return {times(a.constant_, b.constant_)};
  // No model has such sizes, but a file may.
  constexpr std::size_t most_terms = 1024;
  const auto left = a.terms(), right = b.terms();
  if (left.size() * right.size() > most_terms) throw ShapeError("a size of more than 1024 terms");
  std::vector<Dim::Term> product;
  for (const auto& x : left)
    for (const auto& y : right) {
      Dim::Term term{times(x.coefficient, y.coefficient), x.atoms};
      term.atoms.insert(term.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(term.atoms.begin(), term.atoms.end(), [](const auto& p, const auto& q) { return p->name < q->name; });
      product.push_back(std::move(term));
    }
  return Dim::from_terms(std::move(product));
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.is_constant() || b.is_constant()) return a.is_constant() && b.is_constant() && a.constant_ == b.constant_;
  return std::equal(a.terms_->begin(), a.terms_->end(), b.terms_->begin(), b.terms_->end(),
                    [](const auto& x, const auto& y) { return x.coefficient == y.coefficient && x.same_atoms(y); });
}

std::optional<Dim> divide_exactly(const Dim& a, const Dim& b) {
  if (a == Dim(0)) return Dim(0);
  // Long division by the leading term of b; exact when every step divides and nothing remains.
  const auto divisor = b.terms();
  if (divisor.empty()) return std::nullopt;
  Dim rest = a;
  Dim quotient(0);
  for (int step = 0; step < 64 && !(rest == Dim(0)); ++step) {
    const Dim::Term lead = rest.terms().front();
    if (lead.coefficient % divisor[0].coefficient != 0) return std::nullopt;
    Dim::Term part{lead.coefficient / divisor[0].coefficient, lead.atoms};
    for (const auto& atom : divisor[0].atoms) {
      const auto found = std::find_if(part.atoms.begin(), part.atoms.end(),
                                      [&](const auto& candidate) { return candidate->name == atom->name; });
      if (found == part.atoms.end()) return std::nullopt;
      part.atoms.erase(found);
    }
    const Dim step_quotient = Dim::from_terms({part});
    quotient = quotient + step_quotient;
    rest = rest - step_quotient * b;
  }
  if (!(rest == Dim(0))) return std::nullopt;
  return quotient;
}

Dim floor_divide(const Dim& a, std::int64_t divisor) {
  // Multiples of the divisor come out of the floor: (2*T+5)//2 is T+2.
  std::vector<Dim::Term> whole, rest;
  for (Dim::Term& term : a.terms()) {
    const bool number = term.atoms.empty();
    const std::int64_t coefficient = term.coefficient;
    const std::int64_t quotient = number || coefficient % divisor == 0 ? floor_quotient(coefficient, divisor) : 0;
    term.coefficient = coefficient - quotient * divisor;
    if (quotient != 0) whole.push_back({quotient, term.atoms});
    if (term.coefficient != 0) rest.push_back(std::move(term));
  }
  const Dim numerator = Dim::from_terms(std::move(rest));
  if (numerator.is_constant()) return Dim::from_terms(std::move(whole));  // less than the divisor
  auto atom = std::make_shared<Dim::Atom>();
  const bool single = numerator.terms_->size() == 1 && numerator.terms_->front().coefficient > 0;
  atom->name =
      single ? fmt::format("({}//{})", numerator.str(), divisor) : fmt::format("(({})//{})", numerator.str(), divisor);
  atom->numerator = numerator;
  atom->divisor = divisor;
  whole.push_back({1, {std::move(atom)}});
  return Dim::from_terms(std::move(whole));
}

namespace {

// expression := ['-'] term (('+'|'-') term)* ; term := factor ('*' factor)*
// factor := number | name | '(' expression ['//' number] ')'
class DimParser {
 public:
  DimParser(std::string_view text, const std::map<std::string, std::int64_t>& bounds) : text_(text), bounds_(bounds) {}

  std::optional<Dim> parse() {
    auto result = expression(0);
    if (position_ != text_.size()) return std::nullopt;
    return result;
  }

 private:
  bool take(std::string_view token) {
    if (text_.substr(position_, token.size()) != token) return false;
    position_ += token.size();
    return true;
  }

  std::optional<Dim> expression(int depth) {
    if (depth > 16) return std::nullopt;
    const bool negative = take("-");
    auto total = term(depth);
    if (!total) return std::nullopt;
    if (negative) total = Dim(0) - *total;
    for (;;) {
      const bool plus = take("+");
      if (!plus && !take("-")) return total;
      const auto next = term(depth);
      if (!next) return std::nullopt;
      total = plus ? *total + *next : *total - *next;
    }
  }

  std::optional<Dim> term(int depth) {
    auto product = factor(depth);
    while (product && take("*")) {
      const auto next = factor(depth);
      if (!next) return std::nullopt;
      product = *product * *next;
    }
    return product;
  }

  std::optional<Dim> factor(int depth) {
    if (take("(")) {
      auto numerator = expression(depth + 1);
      if (numerator && take(")")) return numerator;
      if (!numerator || !take("//")) return std::nullopt;
      const auto divisor = number();
      if (!divisor || *divisor < 1 || !take(")")) return std::nullopt;
      return floor_divide(*numerator, *divisor);
    }
    if (const auto value = number()) return Dim(*value);
    const std::size_t start = position_;
    while (position_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 || text_[position_] == '_'))
      ++position_;
    const auto bound = bounds_.find(std::string(text_.substr(start, position_ - start)));
    if (bound == bounds_.end() || bound->second < 1) return std::nullopt;
    return Dim::symbol(bound->first, bound->second);
  }

  std::optional<std::int64_t> number() {
    std::int64_t value = 0;
    const std::size_t start = position_;
    while (position_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[position_])) != 0) {
      if (position_ - start > 17) return std::nullopt;
      value = value * 10 + (text_[position_++] - '0');
    }
    if (position_ == start) return std::nullopt;
    return value;
  }

  std::string_view text_;
  const std::map<std::string, std::int64_t>& bounds_;
  std::size_t position_ = 0;
};

template <class Values, class Print>
std::string bracketed(const Values& values, Print print) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + print(values[i]);
  return text + "]";
}

}  // namespace

std::optional<Dim> Dim::parse(std::string_view text, const std::map<std::string, std::int64_t>& bounds) {
  return DimParser(text, bounds).parse();
}

std::string to_string(const Shape& shape) {
  return bracketed(shape, [](const Dim& dim) { return dim.str(); });
}

std::string to_string(const Sizes& sizes) {
  return bracketed(sizes, [](std::int64_t size) { return std::to_string(size); });
}

Dim element_count(const Shape& shape) {
  Dim count(1);
  for (const Dim& dim : shape) count = count * dim;
  return count;
}

std::int64_t element_count(const Sizes& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count = times(count, size);
  return count;
}

Sizes evaluate(const Shape& shape, const SymbolValues& values) {
  Sizes sizes;
  sizes.reserve(shape.size());
  for (const Dim& dim : shape) sizes.push_back(dim.evaluate(values));
  return sizes;
}

Shape to_shape(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

Sizes strides_of(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

}  // namespace jerboa
