#include "server/api_error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include <jerboa/generate/constraint.h>
#include <jerboa/text/template_limits.h>

#include "server/log.h"

namespace jerboa::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 408:
    case 504: return "timeout_error";
    case 429: return "rate_limit_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

ApiError::ApiError(int status, const std::string& message, std::string param, std::string code)
    : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

std::string ApiError::body() const {
  const nlohmann::ordered_json error = {
      {"message", what()}, {"type", type_of(status_)}, {"param", text_or_null(param_)}, {"code", text_or_null(code_)}};
  return nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false,
                                                       nlohmann::ordered_json::error_handler_t::replace);
}

HttpResponse ApiError::response() const {
  HttpResponse out{.status = status_, .body = body()};
  if (status_ == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (status_ == 429 || status_ == 503) out.headers.emplace_back("Retry-After", "1");
  return out;
}

ApiError to_api_error(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) return *api;
  const bool is_request = dynamic_cast<const UsageError*>(&error) != nullptr ||
                          dynamic_cast<const ConstraintError*>(&error) != nullptr ||
                          dynamic_cast<const TemplateError*>(&error) != nullptr;
  if (is_request) return {400, error.what()};
  log_line(fmt::format("error: {}", error.what()));
  if (dynamic_cast<const OutOfMemoryError*>(&error) != nullptr)
    return {503, "the server does not have enough memory for this request", "", "out_of_memory"};
  return {500, "the server failed to answer; its log says why"};
}

}  // namespace jerboa::server
