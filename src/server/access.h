#pragma once

#include <string>
#include <vector>

#include "server/http.h"

namespace jerboa::server {

struct AccessOptions {
  std::string api_key = {};                           ///< "": no key is needed
  std::vector<std::string> origins = {};              ///< origins of other web pages that may use the server; "*": any
  std::string host = "127.0.0.1";                     ///< that the server is bound to
  std::vector<std::string> open_paths = {"/health"};  ///< paths that need no key
};

/// Decides from a request's head whether it is allowed: by its key and, if a browser sent it, by the origin of its
/// page. A server on loopback answers only to loopback's names, so that a page cannot reach it by DNS rebinding.
Screening screen(const HttpRequest& head, const AccessOptions& options);

/// Compares in a time that does not depend on the content of the texts.
bool equal_in_constant_time(std::string_view a, std::string_view b);
bool is_loopback(std::string_view host);

}  // namespace jerboa::server
