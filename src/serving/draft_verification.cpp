#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/draft_verification.h>

namespace jerboa::serving {
namespace {

// Draws an index by weights that need not sum to one. Where all are zero by rounding, takes the likeliest of `model`.
template <class Weight>
std::int32_t draw(std::size_t size, Weight weight, std::span<const float> model, CounterRandom& random) {
  double sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += weight(i);
  double left = random.uniform() * sum;
  std::size_t last = static_cast<std::size_t>(std::max_element(model.begin(), model.end()) - model.begin());
  for (std::size_t i = 0; i < size; ++i) {
    if (weight(i) <= 0) continue;
    last = i;
    left -= weight(i);
    if (left < 0) break;
  }
  return static_cast<std::int32_t>(last);
}

}  // namespace

Verified verify_choices(std::span<const std::int32_t> draft, std::span<const std::int32_t> chosen) {
  if (chosen.size() != draft.size() + 1)
    throw UsageError(fmt::format("a draft of {} tokens needs {} choices of the model, not {}", draft.size(),
                                 draft.size() + 1, chosen.size()));
  const auto differs = std::mismatch(draft.begin(), draft.end(), chosen.begin()).second;
  return {static_cast<int>(differs - chosen.begin()), *differs};
}

Verified verify_draws(std::span<const std::int32_t> draft, std::span<const float> model, std::span<const float> drafter,
                      CounterRandom& random) {
  const std::size_t vocabulary = model.size() / (draft.size() + 1);
  if (vocabulary == 0 || model.size() != vocabulary * (draft.size() + 1) || drafter.size() != vocabulary * draft.size())
    throw UsageError(
        fmt::format("a draft of {} tokens needs that many distributions of the draft model and one more of "
                    "the model, not {} and {} probabilities",
                    draft.size(), drafter.size(), model.size()));
  for (std::size_t i = 0; i < draft.size(); ++i) {
    const auto p = model.subspan(i * vocabulary, vocabulary), q = drafter.subspan(i * vocabulary, vocabulary);
    const std::int32_t token = draft[i];
    if (token < 0 || static_cast<std::size_t>(token) >= vocabulary)
      throw UsageError(fmt::format("the draft holds token {}, but there are {}", token, vocabulary));
    const auto at = static_cast<std::size_t>(token);
    if (random.uniform() * q[at] < p[at]) continue;
    const auto excess = [&](std::size_t t) { return std::max(static_cast<double>(p[t]) - q[t], 0.0); };
    return {static_cast<int>(i), draw(vocabulary, excess, p, random)};
  }
  const auto p = model.last(vocabulary);
  return {static_cast<int>(draft.size()),
          draw(
              vocabulary, [&](std::size_t t) { return static_cast<double>(p[t]); }, p, random)};
}

}  // namespace jerboa::serving
