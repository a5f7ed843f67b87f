#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mcp/line_buffer.h"

namespace jerboa::mcp {

/// Parses server-sent events as they arrive. Events other than "message" are dropped.
class EventStream {
 public:
  void add(std::string_view bytes) { lines_.add(bytes); }
  std::optional<std::string> take();
  std::size_t pending() const { return lines_.size() + data_.size(); }

 private:
  LineBuffer lines_;
  std::string data_;
  bool has_data_ = false, is_message_ = true;
};

}  // namespace jerboa::mcp
