#include <string_view>

#include <jerboa/base/error.h>

namespace jerboa {

std::string CallSite::str() const {
  if (line == 0) return {};
  std::string_view path = file;
  if (const auto slash = path.find_last_of('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
  return std::string(path) + ":" + std::to_string(line);
}

}  // namespace jerboa
