#include "server/log.h"

#include <cstdio>
#include <ctime>
#include <fmt/format.h>

namespace jerboa::server {

void log_line(std::string_view text) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  const std::string line = fmt::format("{:02}:{:02}:{:02} {}\n", parts.tm_hour, parts.tm_min, parts.tm_sec, text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // in one call, so that lines of several threads do not mix
}

}  // namespace jerboa::server
