#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::server {

/// A part of an answer, as a client receives it.
struct OutputEvent {
  enum class Kind : std::uint8_t {
    reasoning,
    content,
    call,      ///< a call begins; the text is the tool's name
    arguments  ///< more of the last call's arguments
  };
  Kind kind;
  std::string text;
  bool operator==(const OutputEvent&) const = default;
};
using OutputEvents = std::vector<OutputEvent>;

/// Reads a tool call as the model writes it, and passes its arguments on as soon as the name is known.
class CallReader {
 public:
  virtual ~CallReader() = default;
  /// Consumes text up to the end of the call; returns the number of bytes.
  virtual std::size_t feed(std::string_view text, OutputEvents& out) = 0;
  bool is_done() const { return is_done_; }
  /// The text so far is not a call.
  bool has_failed() const { return has_failed_; }
  bool has_begun_call() const { return has_begun_call_; }
  /// The value of "arguments" is complete.
  bool has_arguments() const { return has_arguments_; }
  /// The text that was consumed.
  const std::string& text() const { return text_; }

 protected:
  std::string text_;
  bool is_done_ = false, has_failed_ = false, has_begun_call_ = false, has_arguments_ = false;
};

/// {"name": …, "arguments": {…}}
class ObjectReader final : public CallReader {
 public:
  std::size_t feed(std::string_view text, OutputEvents& out) override;

 private:
  enum class Expecting : std::uint8_t { key, colon, value };

  void step(char c);
  void end_string();
  void begin_value();
  void end_value(std::size_t end);
  void send(OutputEvents& out);
  bool is_arguments_key() const { return key_ == "arguments" || key_ == "parameters"; }

  std::string key_, name_, quoted_arguments_;
  int depth_ = 0;
  bool in_string_ = false, is_escaped_ = false;
  Expecting expecting_ = Expecting::key;
  std::size_t token_begin_ = 0, value_begin_ = std::string::npos;
  std::size_t arguments_begin_ = std::string::npos, arguments_end_ = std::string::npos, sent_ = 0;
};

}  // namespace jerboa::server
