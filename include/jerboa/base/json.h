#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace jerboa {

/// An opaque JSON value passed in by the caller: messages of a conversation, schemas of tools, variables of a template.
/// Immutable and cheap to copy. It keeps the JSON library out of the public headers, which would take twice as long to
/// compile with it; inside the library, base/json_value.h gives access to the value.
///
///     const JsonValue tools = JsonValue::parse(R"([{"type": "function", "function": {"name": "weather"}}])");
class JsonValue {
 public:
  /// null
  JsonValue() = default;
  /// Throws UsageError if the text is not valid JSON; `what` describes the text in the message.
  static JsonValue parse(std::string_view text, std::string_view what = "JSON");

  bool is_null() const { return value_ == nullptr; }
  std::string text() const;

  struct Data;
  const Data* data() const { return value_.get(); }
  explicit JsonValue(std::shared_ptr<const Data> value) : value_(std::move(value)) {}

 private:
  std::shared_ptr<const Data> value_;  // none: null
};

}  // namespace jerboa
