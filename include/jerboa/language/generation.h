#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/generate/logprobs.h>
#include <jerboa/generate/sampler.h>

namespace jerboa {

enum class StopReason : std::uint8_t {
  end,        ///< the model produced an end token, or the grammar is complete
  length,     ///< max_tokens
  stop,       ///< a stop string
  context,    ///< the context is full
  deadline,   ///< the time is over
  cancelled,  ///< by Stream::cancel
  failed      ///< the device could not run it, or no token was possible; Generation::error says why
};
std::string_view name(StopReason reason);

/// The next piece of a text that is being generated.
struct TextPiece {
  std::optional<std::int32_t> token = {};  ///< none in the last piece, if that is text held back until then
  std::string text = {};  ///< the text that became final, in whole characters; usually but not always the token's own
  double seconds = 0;     ///< since the request
  std::optional<TokenLogprobs> logprobs = {};  ///< of the token, if GenerateOptions::logprobs is set
};
/// Receives text as soon as it is final, whole characters at a time.
using OnText = std::function<void(std::string_view piece)>;

struct GenerateOptions {
  int max_tokens = 256;
  std::optional<SamplerOptions> sampling = {};  ///< by default as the model's folder recommends
  std::vector<std::string> stop = {};           ///< the text ends before the first of these
  /// Restricts the text to this grammar (compile_json_schema, compile_regex); it ends when it is complete.
  std::shared_ptr<const Grammar> grammar = {};
  std::optional<double> seconds = {};  ///< the text ends after this time, complete or not
  /// The most tokens to guess per step, from earlier occurrences of the same words (prompt lookup) or with a smaller
  /// model (LanguageModel::draft_with). Guesses that the model confirms cost almost nothing; the text is the same with
  /// and without them.
  int drafts = 0;
  /// Draws the tokens on the host, for samplers with custom processors; `sampling` is then not used.
  std::function<std::unique_ptr<Sampler>()> sampler = {};
  /// Also returns each token's log-probability and those of this many of the most likely tokens, at most 20.
  std::optional<int> logprobs = {};
  /// Called for each token, in the thread that reads the text.
  std::function<void(const TextPiece& piece)> on_token = {};
};

struct Generation {
  std::string text;
  std::vector<std::int32_t> tokens;     ///< of the text, without the end token
  std::vector<TokenLogprobs> logprobs;  ///< of these tokens, if GenerateOptions::logprobs is set
  StopReason reason = StopReason::end;
  std::string error = {};          ///< if it failed
  std::int64_t prompt_tokens = 0;  ///< of which `reused` were already in the cache
  std::int64_t reused = 0;
  double prompt_seconds = 0, token_seconds = 0;  ///< until the first token; for all tokens after it
  std::int64_t drafted = 0, accepted = 0;        ///< tokens guessed, and tokens among them that the model confirmed
};

/// How well a model predicts a text.
struct Perplexity {
  double value = 0;         ///< exp of the mean negative log-probability of its tokens
  std::int64_t tokens = 0;  ///< predicted tokens: all but the first
  double seconds = 0;
};

}  // namespace jerboa
