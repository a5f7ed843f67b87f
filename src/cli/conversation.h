#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace jerboa::cli {

/// The messages of a chat, kept within the model's context.
class Conversation {
 public:
  /// Returns the tokens of the prompt for some messages.
  using Count = std::function<std::vector<std::int32_t>(const nlohmann::ordered_json& messages)>;
  Conversation(int context, Count count) : context_(context), count_(std::move(count)) {}

  /// A list of objects with "role" and "content", and calls of tools in OpenAI's form.
  const nlohmann::ordered_json& messages() const { return messages_; }
  nlohmann::ordered_json& messages() { return messages_; }
  bool is_empty() const;  ///< apart from a system message

  /// Replaces the system message; an empty one removes it.
  void set_system(const std::string& text);
  /// Removes all messages but the system message.
  void reset();
  void add(const std::string& role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }
  /// The user's last message; "" if there is none.
  std::string last_message() const;
  /// Removes the user's last message and everything after it.
  void take_last_turn();
  /// The system message, the user's last message and everything after it: the least that stays when the context is
  /// full.
  nlohmann::ordered_json last_turn_alone() const;

  /// Sets the messages back to those of an earlier copy.
  void restore(const Conversation& earlier) { messages_ = earlier.messages_; }

  std::vector<std::int32_t> tokens() const { return count_(messages_); }
  /// Drops the oldest turns until `room` tokens are free for an answer; keeps the system message and the last turn.
  /// Returns the number of dropped messages.
  int make_room(int room);

  /// Writes the messages as JSON, atomically.
  void save(const std::filesystem::path& path) const;
  /// Replaces the messages by those of a file; changes nothing if it is not a list of messages.
  void load(const std::filesystem::path& path);

 private:
  std::size_t first_turn() const;
  std::size_t last_turn() const;  // the number of messages if there is no turn

  int context_;
  Count count_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace jerboa::cli
