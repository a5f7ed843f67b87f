#include "server/result_room.h"

#include <algorithm>
#include <fmt/format.h>

namespace jerboa::server {
namespace {

void shorten(Json& result, const Tokenizer& tokenizer, std::int64_t tokens) {
  result["content"] = shortened_to(tokenizer, result["content"].get<std::string>(), tokens);
}

void shorten_results_of_turn(Json& messages, const Tokenizer& tokenizer, std::int64_t tokens) {
  for (auto message = messages.rbegin(); message != messages.rend() && (*message)["role"] != "user"; ++message)
    if ((*message)["role"] == "tool") shorten(*message, tokenizer, tokens);
}

}  // namespace

std::string shortened_to(const Tokenizer& tokenizer, const std::string& text, std::int64_t tokens) {
  if (std::ssize(text) <= tokens) return text;
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special = false}).ids;
  if (std::ssize(ids) <= tokens) return text;
  const std::size_t before = ids.size();
  ids.resize(static_cast<std::size_t>(tokens));
  return tokenizer.decode(ids) + fmt::format("\n[cut after {} of {} tokens]", tokens, before);
}

bool add_results(Json& messages, Json results, const ResultRoom& room) {
  const std::int64_t left = std::max<std::int64_t>(room.context - room.count(messages), 0);
  const std::int64_t share = left / (2 * std::max<std::int64_t>(std::ssize(results), 1));
  for (Json& result : results) {
    shorten(result, room.tokenizer, share);
    messages.push_back(std::move(result));
  }
  const std::int64_t most = room.context - std::min(room.answer, left / 4);
  if (room.count(messages) <= most) return true;
  for (std::int64_t tokens = most / 2; tokens > 0 && room.count(messages) > most; tokens /= 2)
    shorten_results_of_turn(messages, room.tokenizer, tokens);
  return false;
}

}  // namespace jerboa::server
