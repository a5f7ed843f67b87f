#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace jerboa::server {

/// Writes a line with the time to standard error, without control characters. Any thread may call it.
void log_line(std::string_view text);

/// The method and the path of a request, cut to a length that a log can bear: anyone may send them.
std::string logged(const HttpRequest& request);

}  // namespace jerboa::server
