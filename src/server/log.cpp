#include "server/log.h"

#include <cstdio>
#include <ctime>
#include <fmt/format.h>

#include "base/parse_json.h"

namespace jerboa::server {
namespace {

constexpr std::size_t max_method_bytes = 20, max_path_bytes = 200;

}  // namespace

std::string logged(const HttpRequest& request) {
  return fmt::format("{} {}", shortened(request.method, max_method_bytes), shortened(request.path, max_path_bytes));
}

void log_line(std::string_view text) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  const std::string line =
      fmt::format("{:02}:{:02}:{:02} {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec, printable_line(text));
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one call, so that lines of several threads do not interleave
}

}  // namespace jerboa::server
