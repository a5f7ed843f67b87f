#include <algorithm>
#include <cmath>
#include <numeric>

#include <jerboa/generate/logprobs.h>

namespace jerboa {

float TokenDistribution::logprob(std::int32_t token) const {
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum);
}

TokenDistribution distribution_of(std::span<const float> logits, int count) {
  TokenDistribution out;
  out.logits.assign(logits.begin(), logits.end());
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  out.log_sum = largest + std::log(sum);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = order.begin() + std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), kept, order.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  std::for_each(order.begin(), kept,
                [&](std::int32_t token) { out.likeliest.emplace_back(token, out.logprob(token)); });
  return out;
}

}  // namespace jerboa
