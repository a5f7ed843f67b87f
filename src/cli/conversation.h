#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

/// The messages of a chat, and how they fit into the model's context.
class Conversation {
 public:
  Conversation(LanguageModel& model, ChatTemplateOptions rendering) : model_(model), rendering_(std::move(rendering)) {}

  /// A list of objects with "role" and "content", and calls of tools in OpenAI's form.
  const nlohmann::ordered_json& messages() const { return messages_; }
  nlohmann::ordered_json& messages() { return messages_; }
  bool is_empty() const;  ///< but for a system message

  /// Replaces the system message; an empty one removes it.
  void set_system(const std::string& text);
  /// Forgets everything but the system message.
  void reset();
  void add(const std::string& role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }
  /// Removes the last message of the user and everything after it, and returns its text; "" if there is none.
  std::string take_last_turn();

  /// Sets the messages back to those of an earlier copy.
  void restore(const Conversation& earlier) { messages_ = earlier.messages_; }

  /// The conversation as the template formats it, and its tokens.
  std::string text() const;
  std::vector<std::int32_t> tokens() const;
  /// Counts tokens in another way than tokens(), for models that see more than the messages.
  void count_with(std::function<std::vector<std::int32_t>(const nlohmann::ordered_json& messages)> count) {
    count_ = std::move(count);
  }
  /// Drops the oldest turns until `room` tokens are free for an answer; the system message and the last message stay.
  /// Returns how many messages were dropped.
  int make_room(int room);

  /// As JSON, written atomically.
  void save(const std::filesystem::path& path) const;
  /// Replaces everything; leaves it as it was if the file is not a list of messages.
  void load(const std::filesystem::path& path);

 private:
  std::size_t first_turn() const;

  LanguageModel& model_;
  ChatTemplateOptions rendering_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  std::function<std::vector<std::int32_t>(const nlohmann::ordered_json&)> count_;
};

}  // namespace jerboa::cli
