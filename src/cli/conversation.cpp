#include "cli/conversation.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/model.h>

#include "base/json_value.h"

namespace jerboa::cli {

std::size_t Conversation::first_turn() const { return !messages_.empty() && messages_[0].role == "system" ? 1 : 0; }

bool Conversation::is_empty() const { return messages_.size() == first_turn(); }

void Conversation::set_system(const std::string& text) {
  if (first_turn() == 1) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text});
}

void Conversation::reset() { messages_.resize(first_turn()); }

std::string Conversation::take_last(std::string_view role) {
  if (messages_.empty() || messages_.back().role != role) return "";
  std::string text = std::move(messages_.back().content);
  messages_.pop_back();
  return text;
}

std::string Conversation::text() const { return model_.model().chat_template()->render(messages_, rendering_); }

std::vector<std::int32_t> Conversation::tokens() const { return model_.encode_prompt(text(), {.add_special = false}); }

int Conversation::make_room(int room) {
  const std::size_t before = messages_.size();
  const auto fits = [&] {
    const std::string rendered = text();
    try {
      return std::ssize(model_.encode_prompt(rendered, {.add_special = false})) + room <= model_.context();
    } catch (const UsageError&) {  // more tokens than the context holds
      return false;
    }
  };
  while (!fits()) {
    // A turn ends where the next user message begins.
    std::size_t next = first_turn() + 1;
    while (next < messages_.size() && messages_[next].role != "user") ++next;
    if (next >= messages_.size()) break;
    messages_.erase(messages_.begin() + static_cast<std::ptrdiff_t>(first_turn()),
                    messages_.begin() + static_cast<std::ptrdiff_t>(next));
  }
  return static_cast<int>(before - messages_.size());
}

void Conversation::save(const std::filesystem::path& path) const {
  write_file_atomically(path, json_value(to_json(messages_)).dump(1) + "\n");
}

void Conversation::load(const std::filesystem::path& path) {
  const JsonValue list = JsonValue::parse(FileContent(path).text(), path.string());
  const auto& json = json_value(list);
  if (!json.is_array()) throw UsageError(fmt::format("{}: not a JSON list of messages", path.string()));
  std::vector<ChatMessage> loaded;
  for (const auto& message : json) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string())
      throw UsageError(fmt::format("{}: message {} needs a \"role\" and a \"content\" that are texts", path.string(),
                                   loaded.size() + 1));
    loaded.push_back({message["role"], message["content"]});
  }
  messages_ = std::move(loaded);
}

}  // namespace jerboa::cli
