#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>
#include <jerboa/language/runner.h>

#include "base/clock.h"

// How well a model predicts a given text. The tokens are computed in cache blocks that are reserved for them.
namespace jerboa {
namespace {

using Tokens = std::vector<std::int32_t>;

// The log-probability of each token of a window but the first.
std::vector<float> scores_of(language::Model& model, const serving::TextBlocks& blocks,
                             std::span<const std::int32_t> seen) {
  std::vector<float> found;
  const auto chunk = static_cast<std::size_t>(model.scheduling().chunk);
  for (std::size_t at = 0; at + 1 < seen.size(); at += chunk) {
    const std::size_t count = std::min(seen.size() - 1 - at, chunk);
    const std::vector<float> some =
        model.score(blocks, static_cast<std::int64_t>(at), seen.subspan(at, count), seen.subspan(at + 1, count));
    found.insert(found.end(), some.begin(), some.end());
  }
  return found;
}

// Calls `use` for a whole text, which must fit into the context, in chunks over reserved cache blocks.
template <class Use>
void for_each_chunk(language::Model& model, language::Runner& runner, std::span<const std::int32_t> tokens, Use use) {
  if (tokens.empty()) throw UsageError("a text needs at least one token");
  if (std::ssize(tokens) > model.context())
    throw UsageError(
        fmt::format("{} tokens exceed the context of {}; shorten the text, or load the model with a larger context",
                    tokens.size(), model.context()));
  model.check_tokens(tokens);
  const language::ReservedBlocks blocks = runner.reserve(std::ssize(tokens));
  const auto chunk = static_cast<std::size_t>(model.scheduling().chunk);
  for (std::size_t at = 0; at < tokens.size(); at += chunk)
    use(blocks.text(), at, tokens.subspan(at, std::min(chunk, tokens.size() - at)));
}

}  // namespace

Perplexity LanguageModel::perplexity(std::span<const std::int32_t> tokens,
                                     const std::function<void(std::int64_t scored)>& on_progress) {
  if (tokens.size() < 2) throw UsageError("perplexity needs a text of at least two tokens");
  if (context() < 2) throw UsageError("perplexity needs a context of at least two tokens");
  model_->check_tokens(tokens);
  const auto window = static_cast<std::size_t>(context()), stride = std::max<std::size_t>(1, window / 2);
  const language::ReservedBlocks blocks = runner_->reserve(std::min(std::ssize(tokens), std::int64_t{context()}));
  Perplexity result;
  const detail::Stopwatch watch;
  double sum = 0;
  // Models rely on a special token at the beginning, so every window gets it.
  const bool has_mark = tokenizer().is_special(tokens[0]);
  std::size_t scored = 0;  // tokens up to this index have been predicted
  for (std::size_t begin = 0; scored + 1 < tokens.size(); begin += stride) {
    Tokens seen;
    if (has_mark && begin > 0) seen.push_back(tokens[0]);
    const std::size_t length = std::min(window - seen.size(), tokens.size() - begin);
    seen.insert(seen.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                tokens.begin() + static_cast<std::ptrdiff_t>(begin + length));
    // The token after the window, if there is one, is predicted too.
    const bool ends = begin + length == tokens.size();
    if (!ends) seen.push_back(tokens[begin + length]);
    const std::vector<float> found = scores_of(*model_, blocks.text(), seen);
    const std::size_t last = begin + length - (ends ? 1 : 0);
    const std::size_t fresh = std::min(found.size(), last - scored);
    for (const float value : std::span(found).last(fresh)) sum -= static_cast<double>(value);
    result.tokens += static_cast<std::int64_t>(fresh);
    scored = last;
    if (on_progress) on_progress(result.tokens);
  }
  result.seconds = watch.seconds();
  result.value = std::exp(sum / static_cast<double>(result.tokens));
  return result;
}

std::vector<float> LanguageModel::score(std::span<const std::int32_t> prompt, std::span<const std::int32_t> tokens) {
  if (prompt.empty()) throw UsageError("at least one token is needed to predict the next");
  Tokens seen(prompt.begin(), prompt.end());
  seen.insert(seen.end(), tokens.begin(), tokens.end());
  // The last token is only predicted, never read.
  if (std::ssize(seen) - 1 > context())
    throw UsageError(fmt::format("{} tokens exceed the context of {}", seen.size() - 1, context()));
  model_->check_tokens(seen);
  const language::ReservedBlocks blocks = runner_->reserve(std::ssize(seen) - 1);
  const std::vector<float> found = scores_of(*model_, blocks.text(), seen);
  return {found.end() - std::ssize(tokens), found.end()};
}

HostTensor LanguageModel::logits(std::span<const std::int32_t> tokens) {
  HostTensor all(DType::f32, {0});
  std::size_t filled = 0;  // bytes
  for_each_chunk(*model_, *runner_, tokens, [&](const serving::TextBlocks& blocks, std::size_t at, auto some) {
    if (at == 0) all = HostTensor(DType::f32, {std::ssize(tokens), model_->vocabulary_size()});
    const HostTensor found = model_->logits(blocks, static_cast<std::int64_t>(at), some);
    std::memcpy(all.bytes().data() + filled, found.bytes().data(), found.bytes().size());
    filled += found.bytes().size();
  });
  return all;
}

std::vector<float> LanguageModel::embed(std::span<const std::int32_t> tokens, models::Pooling pooling) {
  if (pooling != models::Pooling::last && pooling != models::Pooling::mean)
    throw UsageError("a language model's embedding is that of the last token or the mean of all");
  std::vector<double> sum;
  for_each_chunk(*model_, *runner_, tokens, [&](const serving::TextBlocks& blocks, std::size_t at, auto some) {
    const HostTensor found = model_->hidden(blocks, static_cast<std::int64_t>(at), some);
    const auto width = static_cast<std::size_t>(found.shape().back());
    const std::span<const float> all = found.f32();
    if (pooling == models::Pooling::last || at == 0) sum.assign(width, 0);
    const std::size_t first = pooling == models::Pooling::last ? some.size() - 1 : 0;
    for (std::size_t token = first; token < some.size(); ++token)
      for (std::size_t i = 0; i < width; ++i) sum[i] += static_cast<double>(all[token * width + i]);
  });
  std::vector<float> out;
  const double count = pooling == models::Pooling::last ? 1 : static_cast<double>(tokens.size());
  for (const double value : sum) out.push_back(static_cast<float>(value / count));
  return out;
}

std::vector<float> LanguageModel::embed(std::string_view text, models::Pooling pooling) {
  return embed(encode_prompt(text), pooling);
}

}  // namespace jerboa
