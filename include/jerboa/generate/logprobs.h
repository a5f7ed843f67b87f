#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace jerboa {

/// The maximum number of alternatives listed per token.
inline constexpr int most_logprobs = 20;

/// The log-probability of a drawn token and those of the most likely ones, by the model itself: after biases, but
/// before penalties, grammars and temperature.
struct TokenLogprobs {
  float drawn = 0;
  std::vector<std::pair<std::int32_t, float>> likeliest = {};  ///< token and log-probability, in descending order
};

/// A distribution over tokens: the log-probabilities of the most likely ones, and the inputs to compute that of any
/// other.
struct TokenDistribution {
  std::vector<std::pair<std::int32_t, float>> likeliest;
  std::vector<float> logits;
  double log_sum = 0;  ///< of the exponentials of all logits

  float logprob(std::int32_t token) const;
};
TokenDistribution distribution_of(std::span<const float> logits, int count);

}  // namespace jerboa
