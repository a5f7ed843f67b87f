#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/generate/logprobs.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/generate/stop.h>
#include <jerboa/serving/page_table.h>
#include <jerboa/serving/prefix_tree.h>
#include <jerboa/serving/prompt_lookup.h>
#include <jerboa/serving/seen_tokens.h>
#include <jerboa/serving/state_slots.h>
#include <jerboa/serving/step.h>

namespace jerboa::serving {

enum class SequenceState : std::uint8_t {
  waiting,  ///< for room in the cache, or for its parent's prompt
  prefilling,
  decoding
};

enum class FinishReason : std::uint8_t {
  end,        ///< an end token, or the grammar is complete
  length,     ///< max_tokens
  stop,       ///< a stop string
  context,    ///< the context is full
  deadline,   ///< the time is over
  cancelled,  ///< by cancel()
  failed      ///< the step failed, or the sampler found no token; the event has the message
};
std::string_view name(FinishReason reason);

/// Where the guesses for a sequence with drafts come from.
enum class DraftSource : std::uint8_t {
  lookup,  ///< PromptLookup
  host     ///< the host, by Scheduler::suggest(), for example with a small draft model
};

/// Turns tokens into text, for stop strings and for hosts that stream text.
class TextStream {
 public:
  virtual ~TextStream() = default;
  /// The text that becomes final with this token.
  virtual std::string push(std::int32_t token) = 0;
  /// The text that was held back.
  virtual std::string finish() = 0;
};

struct SequenceOptions {
  int max_tokens = 256;
  double deadline = std::numeric_limits<double>::infinity();  ///< in the time of the scheduler's `now`
  SamplerOptions sampling = {};
  std::vector<std::int32_t> end_tokens = {};
  /// A custom sampler, for example with processors; the sequence is then sampled from logits on the host. Without it
  /// the device draws by `sampling`, if it can.
  std::function<std::unique_ptr<Sampler>()> sampler = {};
  /// Restricts the text; it ends when nothing may follow.
  std::function<std::unique_ptr<Constraint>()> constraint = {};
  /// Turns the tokens after `prompt` into text; without it events contain only tokens.
  std::function<std::unique_ptr<TextStream>(std::span<const std::int32_t> prompt)> text = {};
  std::vector<std::string> stop = {};  ///< the text ends before the first of these; needs `text`
  int drafts = 0;                      ///< the most tokens to guess per step
  DraftSource draft_source = DraftSource::lookup;
  /// Events have each token's log-probability and those of this many of the most likely tokens, at most most_logprobs.
  std::optional<int> logprobs = {};
  std::string name_space = {};  ///< in the prefix tree: the model and the adapter
};

struct SequenceStatistics {
  double arrived = 0;
  std::optional<double> first_token = {}, finished = {};  ///< times of these events
  std::int64_t prompt_tokens = 0, tokens = 0;
  std::int64_t reused = 0;      ///< prompt tokens found in the cache
  std::int64_t recomputed = 0;  ///< tokens computed again after a preemption
  std::int64_t drafted = 0, accepted = 0;
  int preemptions = 0;
};

/// A sequence's part of the cache. Its members release what they hold: an empty place holds nothing.
struct CachePlace {
  CachePlace(PagePool& pool, const WindowedPools& windows) : table(pool) {
    for (const auto& each : windows) windowed.emplace_back(each->pool);
  }

  PageTable table;
  std::vector<PageTable> windowed = {};   ///< of layers with windows, of the same length
  PrefixTree::Path path = {};             ///< the part of the table that is in the prefix tree
  std::optional<StateTrack> states = {};  ///< of recurrent layers
  StateSlot snapshot = {};                ///< the states at `snapshot_at`, to be moved into the tree
  std::int64_t snapshot_at = 0;
  std::int64_t computed = 0;  ///< positions that steps compute, including those in flight
  std::int64_t written = 0;   ///< positions that completed steps, or other sequences before it, have computed
};

/// One text: its tokens, how the next one is chosen, when it ends, and its place in the cache. A Scheduler owns it.
class Sequence {
 public:
  Sequence(SequenceId id, std::vector<std::int32_t> prompt, SequenceOptions options, bool samples_on_host, double now,
           CachePlace place);
  Sequence(Sequence&&) = default;

  SequenceId id() const { return id_; }
  const SequenceOptions& options() const { return options_; }
  const SequenceStatistics& statistics() const { return statistics_; }
  SequenceState state() const;
  /// The prompt and the generated tokens known so far.
  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::int64_t length() const { return std::ssize(tokens_); }
  std::int64_t prompt_tokens() const { return statistics_.prompt_tokens; }
  std::int64_t generated() const { return length() - prompt_tokens(); }
  /// The most tokens that may still be generated.
  int tokens_left() const { return options_.max_tokens - static_cast<int>(generated()); }
  bool samples_on_host() const { return sampler_ != nullptr; }
  /// Whether a constraint masks the device's draws.
  bool is_masked() const { return constraint_ != nullptr; }
  /// The tokens that the device's penalties apply to; null if there are none.
  const SeenTokens* seen() const { return seen_ ? &*seen_ : nullptr; }
  /// Whether its next step may be issued before its last token is read.
  bool can_be_carried() const { return !samples_on_host() && !is_masked() && options_.drafts == 0; }
  /// Whether the host has yet to suggest a draft for its next step.
  bool awaits_draft() const;

  /// The outcome of a token.
  struct Outcome {
    bool kept = true;  ///< false: an end token, which is not part of the text
    std::string text = {};
    std::optional<FinishReason> finished = {};
  };
  /// Appends the next token. Throws ConstraintError if the device drew one that the constraint does not allow.
  Outcome accept(std::int32_t token, std::int64_t context, double now);
  /// Draws the next token on the host; `logits` is used as scratch.
  std::int32_t sample(std::span<float> logits);
  /// The log-probabilities of the last sampled token.
  TokenLogprobs sampled_logprobs() const;
  /// The tokens that the device may draw next.
  const TokenMask& mask();
  /// The text that was held back, when the sequence ends without a stop string.
  std::string finish_text();

  /// Guesses at the next tokens. Every failed guess of prompt lookup makes the next one shorter.
  std::vector<std::int32_t> propose(std::int64_t most);
  /// The number of guesses worth making: fewer after some were wrong.
  int draft_length() const { return draft_length_; }
  void suggest(std::vector<std::int32_t> draft) { suggestion_ = std::move(draft); }
  /// From now on the guesses come from prompt lookup.
  void draft_by_lookup() { options_.draft_source = DraftSource::lookup; }
  void count_drafts(int drafted, int accepted);

  // The scheduler's bookkeeping.

  bool running = false;  ///< it has a place in the cache
  CachePlace place;
  int pending = 0;              ///< steps in flight that draw a token for it
  std::int64_t last_step = -1;  ///< the latest step that includes it, and its last row there
  std::int32_t last_row = 0;
  std::uint32_t epoch = 0;                ///< counts preemptions: older steps no longer concern the cache
  std::optional<SequenceId> parent = {};  ///< whose cache it shares once the prompt is computed
  SequenceStatistics& count() { return statistics_; }

 private:
  std::string text_of(std::int32_t token);
  Constraint* constraint() const { return sampler_ ? sampler_->constraint() : constraint_.get(); }
  bool nothing_may_follow() const;

  SequenceId id_;
  std::vector<std::int32_t> tokens_;
  SequenceOptions options_;
  std::unique_ptr<Sampler> sampler_;                 // if sampled on the host
  std::unique_ptr<TokenDistribution> distribution_;  // the sampler's input, if log-probabilities are wanted
  std::int32_t sampled_ = 0;
  std::unique_ptr<Constraint> constraint_;  // if the device draws under a mask
  std::optional<SeenTokens> seen_;          // if the device penalises
  std::unique_ptr<TextStream> text_;
  StopMatcher stop_;
  PromptLookup lookup_;
  int draft_length_;
  std::optional<std::vector<std::int32_t>> suggestion_;
  SequenceStatistics statistics_;
};

}  // namespace jerboa::serving
