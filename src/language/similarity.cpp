#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/language/text_encoder.h>

// Comparing embeddings.
namespace jerboa {
namespace {

double dot_of(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

template <class Term>
double sum_of_differences(std::span<const float> a, std::span<const float> b, const Term& term) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += term(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  return sum;
}

}  // namespace

std::span<const float> Embeddings::row(std::int64_t index) const {
  if (index < 0 || index >= count) throw UsageError(fmt::format("there is no row {} of {}", index, count));
  return std::span(values).subspan(static_cast<std::size_t>(index * dimensions), static_cast<std::size_t>(dimensions));
}

float similarity(std::span<const float> a, std::span<const float> b, Similarity kind) {
  if (a.size() != b.size())
    throw UsageError(fmt::format("embeddings of {} and {} dimensions cannot be compared", a.size(), b.size()));
  switch (kind) {
    case Similarity::dot: return static_cast<float>(dot_of(a, b));
    case Similarity::euclidean:
      return static_cast<float>(-std::sqrt(sum_of_differences(a, b, [](double x) { return x * x; })));
    case Similarity::manhattan:
      return static_cast<float>(-sum_of_differences(a, b, [](double x) { return std::abs(x); }));
    default: break;
  }
  const double lengths = std::sqrt(dot_of(a, a) * dot_of(b, b));
  return lengths > 0 ? static_cast<float>(dot_of(a, b) / lengths) : 0;
}

std::vector<Match> nearest(const Embeddings& rows, std::span<const float> query, std::int64_t count, Similarity kind) {
  if (count < 0) throw UsageError(fmt::format("the number of matches must not be negative, and is {}", count));
  std::vector<Match> matches;
  for (std::int64_t i = 0; i < rows.count; ++i) matches.push_back({i, similarity(rows.row(i), query, kind)});
  const auto best = matches.begin() + std::min(count, rows.count);
  std::partial_sort(matches.begin(), best, matches.end(), [](const Match& a, const Match& b) {
    return a.score != b.score ? a.score > b.score : a.index < b.index;
  });
  matches.erase(best, matches.end());
  return matches;
}

}  // namespace jerboa
