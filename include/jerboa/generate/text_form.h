#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/base/json.h>
#include <jerboa/generate/constraint.h>

namespace jerboa {

/// The form of a text that is more than a single expression or schema.
struct TextForm {
  enum class Kind : std::uint8_t { text, json, until, sequence, any_of };

  /// A literal text.
  static TextForm text(std::string content) { return {.kind = Kind::text, .content = std::move(content)}; }
  /// JSON that is valid under a schema, or under the part of it at a JSON pointer, such as "/properties/city".
  static TextForm json(JsonValue schema, std::string place = "") {
    return {.kind = Kind::json, .content = std::move(place), .schema = std::move(schema)};
  }
  /// Any text up to and including the first `mark`.
  static TextForm until(std::string mark) { return {.kind = Kind::until, .content = std::move(mark)}; }
  /// The parts one after another.
  static TextForm sequence(std::vector<TextForm> parts) { return {.kind = Kind::sequence, .parts = std::move(parts)}; }
  /// One of the parts.
  static TextForm any_of(std::vector<TextForm> parts) { return {.kind = Kind::any_of, .parts = std::move(parts)}; }

  Kind kind = Kind::text;
  std::string content = {};
  JsonValue schema = {};
  std::vector<TextForm> parts = {};
};

/// Throws ConstraintError as compile_json_schema does, and if a mark is empty or not UTF-8.
std::shared_ptr<const Grammar> compile_form(const TextForm& form);

}  // namespace jerboa
