#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/generate/constraint.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/serving/sequence.h>
#include <jerboa/text/tokenizer.h>

// Converts a user's request for a text into the options of a Scheduler.
namespace jerboa::language {

/// The properties shared by all texts of a model.
struct TextModel {
  const Tokenizer& tokenizer;
  const std::vector<int>& end_tokens;
  const SamplerOptions& recommended_sampling;
  bool samples_on_device = false, is_deterministic = false;
  /// The bytes of every token, for constraints.
  std::function<std::shared_ptr<const Vocabulary>()> vocabulary;
};

/// The meanings are those of GenerateOptions.
struct TextRequest {
  int max_tokens = 256;
  std::optional<SamplerOptions> sampling = {};
  std::vector<std::string> stop = {};
  std::shared_ptr<const Grammar> grammar = {};
  std::optional<double> seconds = {};
  int drafts = 0;
  std::function<std::unique_ptr<Sampler>()> sampler = {};
};

/// `model.tokenizer` must outlive the sequence.
serving::SequenceOptions sequence_options(const TextModel& model, const TextRequest& request, double now);

/// The tokens of a prompt. Throws UsageError for a text that is far longer than the context, before all of it is
/// tokenised.
std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view text, int context,
                                        EncodeOptions options = {});

}  // namespace jerboa::language
