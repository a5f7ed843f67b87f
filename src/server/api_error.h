#pragma once

#include <string>

#include <jerboa/base/error.h>

#include "server/http.h"

namespace jerboa::server {

/// An error of a request, in the terms of OpenAI's API.
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

/// The error that a client gets for an exception. Internal errors are only logged, because their messages may name
/// paths and other things that clients should not see.
ApiError to_api_error(const std::exception& error);

}  // namespace jerboa::server
