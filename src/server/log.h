#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace jerboa::server {

/// Writes a line with the time to standard error, without control characters. Any thread may call it.
void log_line(std::string_view text);

/// The method and path of a request, shortened, since clients may send any length.
std::string logged(const HttpRequest& request);

}  // namespace jerboa::server
