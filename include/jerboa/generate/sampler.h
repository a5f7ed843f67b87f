#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <jerboa/generate/constraint.h>
#include <jerboa/generate/random.h>

namespace jerboa {

/// How the next token is chosen. The defaults leave the model's distribution as it is.
struct SamplerOptions {
  float temperature = 1.0f;  ///< 0 is greedy: the most likely token, the first one if there are ties
  int top_k = 0;             ///< keep the k most likely; 0 keeps all
  float top_p = 1.0f;        ///< keep the most likely tokens that together have this probability
  float min_p = 0.0f;        ///< drop tokens less likely than this times the most likely one
  float typical_p =
      1.0f;  ///< keep the most typical tokens (of about average surprise) that together have this probability
  float repetition_penalty = 1.0f;  ///< divides the positive and multiplies the negative logits of tokens seen
  float presence_penalty = 0.0f;    ///< subtracted from the logit of a token that was generated
  float frequency_penalty = 0.0f;   ///< subtracted once for each occurrence
  int penalty_window = 0;           ///< how many recent tokens the penalties consider; 0 means all
  std::vector<std::pair<int, float>> logit_bias = {};
  std::vector<int> banned_tokens = {};
  std::uint64_t seed = 0;
};
/// Whether any penalty changes logits.
bool penalises(const SamplerOptions& options);

/// Draws tokens from logits, in this order: bias, bans, the caller's processors, the constraint, penalties,
/// temperature, top-k, top-p, min-p, typical, draw. The same seed and logits give the same tokens.
///
///     Sampler sampler({.temperature = 0.7f, .top_p = 0.9f, .seed = 42});
///     sampler.observe(prompt);
///     int token = sampler.sample(logits);
class Sampler {
 public:
  /// Changes the logits in place, given the tokens so far.
  using Processor = std::function<void(std::span<float> logits, std::span<const int> history)>;

  /// Throws UsageError if an option is out of range.
  explicit Sampler(SamplerOptions options = {});

  /// From now on, draws only tokens that the constraint allows; null removes it.
  void constrain(std::unique_ptr<Constraint> constraint) { constraint_ = std::move(constraint); }
  Constraint* constraint() const { return constraint_.get(); }
  void add_processor(Processor processor) { processors_.push_back(std::move(processor)); }

  /// Reports tokens that were not drawn here, such as the prompt. The repetition penalty counts them; the others do
  /// not.
  void observe(std::span<const int> tokens);

  /// The next token; `logits` is used as scratch. With `tokens_left`, a constraint makes sure that the text is
  /// completed in time.
  int sample(std::span<float> logits, int tokens_left = Constraint::unlimited);

  const std::vector<int>& history() const { return history_; }

 private:
  struct Candidate {
    int token;
    float logit;
    double probability;
  };

  static bool likelier(const Candidate& a, const Candidate& b);
  static bool comes_before(const Candidate& a, const Candidate& b);
  void penalise(std::span<float> logits) const;
  void gather(std::span<const float> logits);
  void softmax();
  void keep_nucleus();
  void keep_first(double total);
  void keep_typical();
  int draw();

  SamplerOptions options_;
  CounterRandom random_;
  std::unique_ptr<Constraint> constraint_;
  std::vector<Processor> processors_;
  std::vector<int> history_;
  std::size_t prompt_size_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace jerboa
