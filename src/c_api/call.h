#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <jerboa/base/error.h>
#include <jerboa/c_api/jerboa_c.h>

struct jerboa_buffer {
  std::string bytes;
};

// Helpers of every function in the C interface.
namespace jerboa::c_api {

/// Runs a function's body. Exceptions do not leave it, but become a status and this thread's last error.
jerboa_status guarded(const std::function<void()>& body);

/// A text that the caller passed. Throws UsageError if it is NULL but has a size.
std::string_view text_of(const char* text, std::size_t size, const char* what);

std::string_view bytes_of(const std::uint8_t* bytes, std::size_t size, const char* what);

/// Passes bytes to the caller. Throws UsageError if `out` is NULL.
void give(jerboa_buffer** out, std::string bytes);

/// Throws UsageError if the handle is NULL.
template <class Handle>
Handle& handle(Handle* given, const char* what) {
  if (given == nullptr) throw UsageError(std::string(what) + " is NULL");
  return *given;
}

}  // namespace jerboa::c_api
