#pragma once

#include <string>
#include <vector>

#include "server/http.h"

namespace jerboa::server {

struct AccessOptions {
  std::string api_key = {};                           ///< "": none is needed
  std::vector<std::string> origins = {};              ///< other web pages that may use the server; "*": any
  std::string host = "127.0.0.1";                     ///< that the server is bound to
  std::vector<std::string> open_paths = {"/health"};  ///< that need no key
};

/// Decides by its head whether a request may be made: by a key, and, where a browser sends it, by the page that it
/// comes from. A server on loopback answers only to loopback's names, so that a page whose name was pointed there
/// cannot use it.
Screening screen(const HttpRequest& head, const AccessOptions& options);

/// Takes as long for a wrong text as for a right one.
bool equal_in_constant_time(std::string_view a, std::string_view b);
bool is_loopback(std::string_view host);

}  // namespace jerboa::server
