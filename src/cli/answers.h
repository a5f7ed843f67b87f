#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>

#include "cli/agent.h"

namespace jerboa::cli {

/// Several continuations of one prompt, which is computed once. Ctrl-C ends them all.
class Answers {
 public:
  /// Each has the next seed.
  Answers(LanguageModel& model, const std::vector<std::int32_t>& prompt, GenerateOptions options, int count);

  /// Until all have ended. `on_text` receives the text of the first as it comes. Throws if one failed.
  void wait(const OnText& on_text = {});
  std::vector<Generation> results() const;

 private:
  LanguageModel& model_;
  std::vector<language::Stream> streams_;
};

struct AnswerDetails {
  std::optional<int> index = {};
  bool log_probabilities = false;  ///< with those that GenerateOptions::logprobs asked for
  const ChatAnswer* read = nullptr;
};
/// An answer for programs. With what was read of it, the text is that without calls and thoughts, which are added.
nlohmann::ordered_json answer_json(const Generation& answer, const AnswerDetails& details = {});

}  // namespace jerboa::cli
