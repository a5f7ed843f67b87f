#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace jerboa {

/// Walks a JSON text from left to right without building a tree, for the large, regular parts of files (a vocabulary
/// has hundreds of thousands of entries). The text must outlive the cursor. Malformed text throws FileError with the
/// line.
///
///     cursor.begin_object();
///     while (cursor.next_key(key)) { if (key == "vocab") …; else cursor.skip_value(); }
class JsonCursor {
 public:
  /// Errors call the file `name`. `text` must be valid UTF-8.
  JsonCursor(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  void begin_object();
  /// Moves to the next value of the object; false at its end.
  bool next_key(std::string_view& key);
  void begin_array();
  /// Moves to the next value of the array; false at its end.
  bool next_element();

  /// The current value. A string's view lasts until the next string or key is read.
  std::string_view string();
  std::int64_t integer();
  double number();
  bool boolean();
  /// Consumes a null; false if the current value is something else.
  bool null();

  /// Skips the current value and returns its text.
  std::string_view skip_value();
  char peek();
  /// Fails if anything but white space follows the outermost value.
  void finish();

  [[noreturn]] void fail(std::string_view message) const;

 private:
  void skip_space();
  void expect(char c);
  bool consume(char c);
  std::string_view literal();
  bool next(char close);

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
  bool first_ = false;  // the current object or array has just begun
  std::string unescaped_;
};

}  // namespace jerboa
