#include "server/task.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/language/model.h>

namespace jerboa::server {
namespace {

std::string template_of(LanguageModel& model) {
  return model.has_chat_template() ? model.model().chat_template()->source() : std::string();
}

std::size_t longest_token_of(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (const auto token = tokenizer.id_to_token(id)) longest = std::max(longest, token->size());
  return longest;
}

}  // namespace

LoadedModel::LoadedModel(std::string served_name, LanguageModel loaded)
    : name(std::move(served_name)), language(std::move(loaded)) {
  const std::string source = template_of(language);
  tool_format = &tool_format_of(source);
  template_shows_tools = source.find("tools") != std::string::npos;
  names_follow_marks = tool_format->syntax == CallSyntax::list && source.find("[ARGS]") != std::string::npos;
  longest_token = longest_token_of(language.tokenizer());
}

void LoadedModel::check_length(std::size_t tokens) const {
  if (tokens > static_cast<std::size_t>(language.context()))
    throw ApiError(400,
                   fmt::format("the prompt has {} tokens, but the context of {} holds {}; shorten it, or start the "
                               "server with a larger --context",
                               tokens, name, language.context()),
                   "", "context_length_exceeded");
}

std::vector<std::int32_t> LoadedModel::encode(const std::string& text, bool add_special) const {
  check_length(text.size() / longest_token);
  std::vector<std::int32_t> tokens = language.tokenizer().encode(text, {.add_special = add_special}).ids;
  if (tokens.empty()) throw ApiError(400, "the prompt is empty");
  check_length(tokens.size());
  return tokens;
}

}  // namespace jerboa::server
