#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

/// The tokens of a prompt: of the text itself or, if there are tools, of the text as a user's message to which the
/// model's chat template adds them.
std::vector<std::int32_t> prompt_tokens(LanguageModel& model, const std::string& text, const JsonValue& tools);

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
  bool log_probabilities = false;
};
/// An answer for programs.
nlohmann::ordered_json answer_json(LanguageModel& model, const std::vector<std::int32_t>& prompt,
                                   const Generation& answer, const AnswerDetails& details = {});

}  // namespace jerboa::cli
