#pragma once

#include <string_view>

namespace jerboa::server {

/// Writes a line with the time to standard error. Any thread may call it.
void log_line(std::string_view text);

}  // namespace jerboa::server
