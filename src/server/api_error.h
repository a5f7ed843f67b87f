#pragma once

#include <string>

#include <jerboa/base/error.h>

#include "server/http.h"

namespace jerboa::server {

/// A request that cannot be answered, in the terms of OpenAI's API.
class ApiError : public Error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {});

  int status() const { return status_; }
  /// {"error": {"message", "type", "param", "code"}}
  std::string body() const;
  HttpResponse response() const;

 private:
  int status_;
  std::string param_, code_;
};

/// What an exception of any part means for the request that it ended. What is the server's own affair is written to the
/// log, because it may name paths and other things that clients are not to know.
ApiError to_api_error(const std::exception& error);

}  // namespace jerboa::server
