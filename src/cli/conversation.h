#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace jerboa::cli {

/// The messages of a chat, and how they fit into the model's context.
class Conversation {
 public:
  /// The tokens that a model reads for some messages.
  using Count = std::function<std::vector<std::int32_t>(const nlohmann::ordered_json& messages)>;
  Conversation(int context, Count count) : context_(context), count_(std::move(count)) {}

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
  /// The last message of the user; "" if there is none.
  std::string last_message() const;
  /// Removes it and everything after it.
  void take_last_turn();
  /// It and everything after it, with the system message: what stays at least when the context is full.
  nlohmann::ordered_json last_turn_alone() const;

  /// Sets the messages back to those of an earlier copy.
  void restore(const Conversation& earlier) { messages_ = earlier.messages_; }

  std::vector<std::int32_t> tokens() const { return count_(messages_); }
  /// Drops the oldest turns until `room` tokens are free for an answer; the system message and the last message stay.
  /// Returns how many messages were dropped.
  int make_room(int room);

  /// As JSON, written atomically.
  void save(const std::filesystem::path& path) const;
  /// Replaces everything; leaves it as it was if the file is not a list of messages.
  void load(const std::filesystem::path& path);

 private:
  std::size_t first_turn() const;
  std::size_t last_turn() const;  // the number of messages if there is none

  int context_;
  Count count_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace jerboa::cli
