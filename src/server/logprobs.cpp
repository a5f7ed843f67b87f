#include "server/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace jerboa::server {

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

std::unique_ptr<Sampler> LogprobRecorder::make_sampler(const SamplerOptions& options) {
  auto sampler = std::make_unique<Sampler>(options);
  sampler->add_processor([this](std::span<float> logits, std::span<const int>) {
    TokenDistribution found = distribution_of(logits, count_);
    const std::lock_guard lock(mutex_);
    recorded_.push_back(std::move(found));
  });
  return sampler;
}

std::optional<TokenDistribution> LogprobRecorder::take() {
  const std::lock_guard lock(mutex_);
  if (recorded_.empty()) return std::nullopt;
  TokenDistribution out = std::move(recorded_.front());
  recorded_.pop_front();
  return out;
}

}  // namespace jerboa::server
