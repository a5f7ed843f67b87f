#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <jerboa/generate/sampler.h>

namespace jerboa::server {

/// The model's distribution at one position of a text: the log-probabilities of the likeliest tokens, and what is
/// needed for that of any other.
struct TokenDistribution {
  std::vector<std::pair<std::int32_t, float>> likeliest;  ///< token and log-probability, in descending order
  std::vector<float> logits;
  double log_sum = 0;  ///< of the exponentials of all logits

  float logprob(std::int32_t token) const;
};
TokenDistribution distribution_of(std::span<const float> logits, int count);

/// Records the distribution at each position while a text is sampled.
class LogprobRecorder {
 public:
  explicit LogprobRecorder(int count) : count_(count) {}
  /// A sampler that reports to this recorder, which must outlive it.
  std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options);
  /// The distribution that the next token of the text was drawn from.
  std::optional<TokenDistribution> take();

 private:
  int count_;
  std::mutex mutex_;
  std::deque<TokenDistribution> recorded_;
};

}  // namespace jerboa::server
