#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>

#include "cli/agent.h"

namespace jerboa::cli {

/// Several completions of one prompt, whose prefill is shared. Ctrl-C ends them all.
class Answers {
 public:
  /// Each has a seed of its own, counting up from that of the options.
  Answers(LanguageModel& model, const std::vector<std::int32_t>& prompt, GenerateOptions options, int count);

  /// Waits until all have ended. `on_text` receives the text of the first as it is generated. Throws if one failed.
  void wait(const OnText& on_text = {});
  std::vector<Generation> results() const;

 private:
  LanguageModel& model_;
  std::vector<language::Stream> streams_;
};

struct AnswerDetails {
  std::optional<int> index = {};
  bool log_probabilities = false;  ///< with the alternatives that GenerateOptions::logprobs asked for
  const ChatAnswer* read = nullptr;
};
/// A completion as JSON. If it was parsed, calls and thoughts are listed apart from the text.
nlohmann::ordered_json answer_json(const Generation& answer, const AnswerDetails& details = {});

}  // namespace jerboa::cli
