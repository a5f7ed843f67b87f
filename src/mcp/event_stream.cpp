#include "mcp/event_stream.h"

#include <utility>

namespace jerboa::mcp {

std::optional<std::string> EventStream::take() {
  while (const auto line = lines_.take()) {
    if (line->empty()) {  // the end of an event
      const bool is_whole = std::exchange(has_data_, false) && std::exchange(is_message_, true);
      is_message_ = true;
      std::string data = std::exchange(data_, {});
      if (is_whole) return data;
      continue;
    }
    const std::size_t colon = std::min(line->find(':'), line->size());
    const std::string field = line->substr(0, colon);
    std::string value = line->substr(std::min(colon + 1, line->size()));
    if (value.starts_with(' ')) value.erase(0, 1);
    if (field == "event") is_message_ = value == "message";
    if (field != "data") continue;
    if (has_data_) data_ += '\n';
    data_ += value;
    has_data_ = true;
  }
  return std::nullopt;
}

}  // namespace jerboa::mcp
