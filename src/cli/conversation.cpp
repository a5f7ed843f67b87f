#include "cli/conversation.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "base/json_value.h"

namespace jerboa::cli {

using Json = nlohmann::ordered_json;

std::size_t Conversation::first_turn() const { return !messages_.empty() && messages_[0]["role"] == "system" ? 1 : 0; }

bool Conversation::is_empty() const { return messages_.size() == first_turn(); }

void Conversation::set_system(const std::string& text) {
  if (first_turn() == 1) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::reset() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first_turn()), messages_.end());
}

std::size_t Conversation::last_turn() const {
  std::size_t at = messages_.size();
  while (at > 0 && messages_[at - 1]["role"] != "user") --at;
  return at == 0 ? messages_.size() : at - 1;
}

std::string Conversation::last_message() const {
  return last_turn() == messages_.size() ? "" : messages_[last_turn()]["content"].get<std::string>();
}

void Conversation::take_last_turn() {
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(last_turn()), messages_.end());
}

Json Conversation::last_turn_alone() const {
  Json alone = Json::array();
  for (std::size_t i = 0; i < messages_.size(); ++i)
    if (i < first_turn() || i >= last_turn()) alone.push_back(messages_[i]);
  return alone;
}

int Conversation::make_room(int room) {
  const std::size_t before = messages_.size();
  const auto fits = [&] {
    try {
      return std::ssize(tokens()) + room <= context_;
    } catch (const UsageError&) {  // too long for the context
      return false;
    }
  };
  while (!fits()) {
    // A turn ends at the next user message.
    std::size_t next = first_turn() + 1;
    while (next < messages_.size() && messages_[next]["role"] != "user") ++next;
    if (next >= messages_.size()) break;
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first_turn()),
                    messages_.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return static_cast<int>(before - messages_.size());
}

void Conversation::save(const std::filesystem::path& path) const {
  write_file_atomically(path, messages_.dump(1) + "\n");
}

void Conversation::load(const std::filesystem::path& path) {
  const JsonValue list = JsonValue::parse(FileContent(path).text(), path.string());
  const auto& json = json_value(list);
  if (!json.is_array()) throw UsageError(fmt::format("{}: not a JSON list of messages", path.string()));
  Json loaded = Json::array();
  for (const auto& message : json) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string())
      throw UsageError(fmt::format("{}: message {} needs a \"role\" and a \"content\" that are texts", path.string(),
                                   loaded.size() + 1));
    loaded.push_back(message);
  }
  messages_ = std::move(loaded);
}

}  // namespace jerboa::cli
