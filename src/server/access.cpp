#include "server/access.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "server/api_error.h"

namespace jerboa::server {
namespace {

// "localhost:8080" and "[::1]:8080" without the port.
std::string_view host_name(std::string_view authority) {
  if (!authority.empty() && authority[0] == '[') {
    const std::size_t end = authority.find(']');
    return authority.substr(0, end == std::string_view::npos ? authority.size() : end + 1);
  }
  return authority.substr(0, authority.find(':'));
}

bool is_own_page(std::string_view origin, std::string_view host) {
  return !host.empty() && (origin == fmt::format("http://{}", host) || origin == fmt::format("https://{}", host));
}

// 127.0.0.1, but not 127.evil.example, which its owner may point anywhere.
bool is_loopback_address(std::string_view host) {
  if (host.substr(0, 4) != "127.") return false;
  int numbers = 0;
  for (std::size_t begin = 0; begin <= host.size();) {
    const std::size_t end = std::min(host.find('.', begin), host.size());
    const std::string_view digits = host.substr(begin, end - begin);
    int number = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || rest != digits.data() + digits.size() || number < 0 || number > 255) return false;
    ++numbers;
    begin = end + 1;
  }
  return numbers == 4;
}

bool has_key(const HttpRequest& head, const AccessOptions& options) {
  if (options.api_key.empty()) return true;
  if (std::find(options.open_paths.begin(), options.open_paths.end(), head.path) != options.open_paths.end())
    return true;
  constexpr std::string_view scheme = "Bearer ";
  const std::string_view given = head.header("authorization");
  return given.substr(0, scheme.size()) == scheme &&
         equal_in_constant_time(given.substr(scheme.size()), options.api_key);
}

HttpResponse preflight() {
  return {.status = 204,
          .type = "",
          .headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                      {"Access-Control-Allow-Headers", "*, Authorization, Content-Type"},
                      {"Access-Control-Max-Age", "600"}}};
}

}  // namespace

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^
                                        static_cast<unsigned char>(b.empty() ? '\0' : b[i % b.size()]));
  return difference == 0;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || is_loopback_address(host);
}

Screening screen(const HttpRequest& head, const AccessOptions& options) {
  const auto refuse = [](Headers headers, int status, const std::string& why, const char* code) {
    return Screening{.answer = ApiError(status, why, "", code).response(), .headers = std::move(headers)};
  };
  const std::string_view host = head.header("host"), origin = head.header("origin");
  if (is_loopback(options.host) && !host.empty() && !is_loopback(host_name(host)) && host_name(host) != options.host)
    return refuse({}, 403, fmt::format("this server is on loopback, and does not answer to the name {}", host),
                  "host_not_allowed");
  Headers headers;
  if (!origin.empty() && !is_own_page(origin, host)) {
    const bool is_allowed = std::any_of(options.origins.begin(), options.origins.end(),
                                        [&](const std::string& one) { return one == "*" || one == origin; });
    if (!is_allowed)
      return refuse({}, 403, fmt::format("pages of {} may not use this server; --cors allows them", origin),
                    "origin_not_allowed");
    headers = {{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
    if (head.method == "OPTIONS") return {.answer = preflight(), .headers = std::move(headers)};
  }
  if (!has_key(head, options))
    return refuse(std::move(headers), 401, "the API key is missing or wrong; send it as Authorization: Bearer KEY",
                  "invalid_api_key");
  return {.answer = {}, .headers = std::move(headers)};
}

}  // namespace jerboa::server
