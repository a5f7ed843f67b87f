#include "cli/conversation.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/model.h>

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

std::string Conversation::take_last_turn() {
  std::size_t at = messages_.size();
  while (at > 0 && messages_[at - 1]["role"] != "user") --at;
  if (at == 0) return "";
  std::string text = messages_[at - 1]["content"];
  messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(at) - 1, messages_.end());
  return text;
}

std::string Conversation::text() const {
  return model_.model().chat_template()->render(make_json(messages_), rendering_);
}

std::vector<std::int32_t> Conversation::tokens() const {
  return count_ ? count_(messages_) : model_.encode_prompt(text(), {.add_special = false});
}

int Conversation::make_room(int room) {
  const std::size_t before = messages_.size();
  const auto fits = [&] {
    try {
      return std::ssize(tokens()) + room <= model_.context();
    } catch (const UsageError&) {  // more tokens than the context holds
      return false;
    }
  };
  while (!fits()) {
    // A turn ends where the next user message begins.
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
