#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>

#include <jerboa/generate/sampler.h>

#include "base/stable_sort.h"

namespace jerboa {
namespace {

constexpr float excluded = -std::numeric_limits<float>::infinity();

void require(bool holds, const char* option, double value, const char* wanted) {
  if (!holds) throw UsageError(fmt::format("sampler: {} is {}, but must be {}", option, value, wanted));
}

}  // namespace

bool penalises(const SamplerOptions& options) {
  return options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0;
}

bool Sampler::likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool Sampler::comes_before(const Candidate& a, const Candidate& b) { return a.token < b.token; }

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), random_(options_.seed) {
  require(options_.temperature >= 0, "temperature", options_.temperature, "0 or more");
  require(options_.top_k >= 0, "top_k", options_.top_k, "0 or more");
  require(options_.top_p > 0 && options_.top_p <= 1, "top_p", options_.top_p, "above 0 and at most 1");
  require(options_.min_p >= 0 && options_.min_p <= 1, "min_p", options_.min_p, "from 0 to 1");
  require(options_.typical_p > 0 && options_.typical_p <= 1, "typical_p", options_.typical_p, "above 0 and at most 1");
  require(options_.repetition_penalty > 0, "repetition_penalty", options_.repetition_penalty, "above 0");
  require(options_.penalty_window >= 0, "penalty_window", options_.penalty_window, "0 or more");
}

void Sampler::observe(std::span<const int> tokens) {
  history_.insert(history_.begin() + static_cast<std::ptrdiff_t>(prompt_size_), tokens.begin(), tokens.end());
  prompt_size_ += tokens.size();
}

int Sampler::sample(std::span<float> logits, int tokens_left) {
  const auto at = [&](int token, const char* option) -> float& {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size())
      throw UsageError(
          fmt::format("sampler: {} names token {}, but there are {} tokens", option, token, logits.size()));
    return logits[static_cast<std::size_t>(token)];
  };
  for (const auto& [token, bias] : options_.logit_bias) at(token, "logit_bias") += bias;
  for (const int token : options_.banned_tokens) at(token, "banned_tokens") = excluded;
  for (const Processor& processor : processors_) processor(logits, history_);
  if (constraint_) {
    const auto& words = constraint_->allowed(tokens_left).words();
    for (std::size_t i = 0; i < logits.size(); ++i)
      if (i / 64 >= words.size() || (words[i / 64] >> (i % 64) & 1) == 0) logits[i] = excluded;
  }
  penalise(logits);
  gather(logits);
  int token = 0;
  if (options_.temperature == 0) {
    token = std::max_element(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
              return a.logit < b.logit;
            })->token;
  } else {
    softmax();
    if (options_.top_p < 1) keep_nucleus();
    if (options_.min_p > 0) {
      double largest = 0;
      for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.probability);
      std::erase_if(candidates_, [&](const Candidate& c) { return c.probability < largest * options_.min_p; });
    }
    if (options_.typical_p < 1) keep_typical();
    token = draw();
  }
  if (constraint_) constraint_->accept(token);
  history_.push_back(token);
  return token;
}

void Sampler::penalise(std::span<float> logits) const {
  if (!penalises(options_)) return;
  std::unordered_map<int, int> generated;  // occurrences of each; 0 if only in the prompt
  const std::size_t window = static_cast<std::size_t>(options_.penalty_window);
  const std::size_t begin = window > 0 && history_.size() > window ? history_.size() - window : 0;
  for (std::size_t i = begin; i < history_.size(); ++i) generated[history_[i]] += i >= prompt_size_ ? 1 : 0;
  for (const auto& [token, count] : generated) {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    if (count > 0) logit -= options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
  }
}

// The tokens that are still possible or, when sampling, the top k of them.
void Sampler::gather(std::span<const float> logits) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > excluded) candidates_.push_back({static_cast<int>(i), logits[i], 0});
  if (candidates_.empty()) throw UsageError("sampler: no token is possible: every logit is excluded or NaN");
  if (options_.temperature == 0) return;
  const auto k = static_cast<std::size_t>(options_.top_k);
  if (k > 0 && k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                     likelier);
    candidates_.resize(k);
    std::sort(candidates_.begin(), candidates_.end(), likelier);
  }
}

void Sampler::softmax() {
  float largest = excluded;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
  double sum = 0;
  for (Candidate& candidate : candidates_) {
    // An infinite logit is certain; the difference of two would be NaN.
    const double above = candidate.logit == largest ? 0 : static_cast<double>(candidate.logit) - largest;
    sum += candidate.probability = std::exp(above / options_.temperature);
  }
  for (Candidate& candidate : candidates_) candidate.probability /= sum;
}

void Sampler::keep_nucleus() {
  // All tokens below this have less total probability than may be dropped, so that only the others need sorting.
  const double share = (1.0 - options_.top_p) / static_cast<double>(candidates_.size());
  std::erase_if(candidates_, [&](const Candidate& c) { return c.probability < share; });
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  keep_first(options_.top_p);
}

// The first candidates that together have a probability; `candidates_` need not sum to one.
void Sampler::keep_first(double total) {
  double reached = 0;
  std::size_t count = 0;
  while (count < candidates_.size() && reached < total) reached += candidates_[count++].probability;
  candidates_.resize(std::max<std::size_t>(count, 1));
}

void Sampler::keep_typical() {
  double sum = 0, entropy = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.probability;
  for (Candidate& candidate : candidates_) {
    candidate.probability /= sum;
    if (candidate.probability > 0) entropy -= candidate.probability * std::log(candidate.probability);
  }
  const auto strangeness = [&](const Candidate& c) { return std::fabs(-std::log(c.probability) - entropy); };
  detail::stable_sort(candidates_,
                      [&](const Candidate& a, const Candidate& b) { return strangeness(a) < strangeness(b); });
  keep_first(options_.typical_p);
}

// In token order, whatever order they were filtered in, so that a device can draw the same token without sorting.
int Sampler::draw() {
  if (!std::is_sorted(candidates_.begin(), candidates_.end(), comes_before))
    std::sort(candidates_.begin(), candidates_.end(), comes_before);
  double sum = 0;
  for (const Candidate& candidate : candidates_) sum += candidate.probability;
  double left = random_.uniform() * sum;
  for (const Candidate& candidate : candidates_) {
    left -= candidate.probability;
    if (left < 0) return candidate.token;
  }
  // Rounding may leave a remainder: take the last token with nonzero probability.
  for (std::size_t i = candidates_.size(); i-- > 1;)
    if (candidates_[i].probability > 0) return candidates_[i].token;
  return candidates_.front().token;
}

}  // namespace jerboa
