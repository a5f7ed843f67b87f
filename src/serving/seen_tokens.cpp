#include <jerboa/serving/seen_tokens.h>
#include <jerboa/serving/step.h>

namespace jerboa::serving {

SeenTokens::SeenTokens(std::span<const std::int32_t> prompt, int window)
    : tokens_(prompt.begin(), prompt.end()), prompt_size_(prompt.size()), window_(static_cast<std::size_t>(window)) {
  for (const std::int32_t token : prompt) ++counts_[token].seen;
  if (window_ > 0 && tokens_.size() > window_) forget_before(tokens_.size() - window_);
}

void SeenTokens::push(std::int32_t token) {
  leave_room();
  tokens_.push_back(token);
  Count& count = counts_[token];
  ++count.seen;
  ++count.generated;
}

void SeenTokens::leave_room() {
  if (window_ > 0 && tokens_.size() >= window_) forget_before(tokens_.size() - window_ + 1);
}

void SeenTokens::forget_before(std::size_t first) {
  for (; first_ < first; ++first_) {
    const auto found = counts_.find(tokens_[first_]);
    if (first_ >= prompt_size_) --found->second.generated;
    if (--found->second.seen == 0) counts_.erase(found);
  }
}

void SeenTokens::list(std::span<std::int32_t> tokens, std::span<float> occurrences) const {
  std::size_t index = 0;
  for (const auto& [token, count] : counts_) {
    tokens[index] = token;
    occurrences[index++] = count.generated > 0 ? static_cast<float>(count.generated) : only_in_prompt;
  }
}

}  // namespace jerboa::serving
