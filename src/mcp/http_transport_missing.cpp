#include "mcp/transport.h"

namespace jerboa::mcp {

std::unique_ptr<Transport> open_http(const HttpOptions& options) {
  throw UsageError(options.url + ": this build of jerboa cannot connect to it: it was built without libcurl");
}

}  // namespace jerboa::mcp
