#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

/// The messages of a chat, and how they fit into the model's context.
class Conversation {
 public:
  Conversation(LanguageModel& model, ChatTemplateOptions rendering) : model_(model), rendering_(std::move(rendering)) {}

  const std::vector<ChatMessage>& messages() const { return messages_; }
  bool is_empty() const;  ///< but for a system message

  /// Replaces the system message; an empty one removes it.
  void set_system(const std::string& text);
  /// Forgets everything but the system message.
  void reset();
  void add(std::string role, std::string text) { messages_.push_back({std::move(role), std::move(text)}); }
  /// Removes the last message if it has this role, and returns its text.
  std::string take_last(std::string_view role);

  /// Sets the messages back to those of an earlier copy.
  void restore(const Conversation& earlier) { messages_ = earlier.messages_; }

  /// The conversation as the template formats it, and its tokens.
  std::string text() const;
  std::vector<std::int32_t> tokens() const;
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
  std::vector<ChatMessage> messages_;
};

}  // namespace jerboa::cli
