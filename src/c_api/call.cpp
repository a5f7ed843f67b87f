#include "c_api/call.h"

#include <new>
#include <utility>

namespace jerboa::c_api {
namespace {

thread_local std::string last_error;

// Not inlined: clang 14 compiles a thread's first use of such a variable to a trap if it is within a handler in WASM.
[[gnu::noinline]] jerboa_status failed(jerboa_status status, const char* message) {
  last_error.assign(message);
  return status;
}

jerboa_status status_of(const std::function<void()>& body) {
  try {
    body();
    return JERBOA_OK;
  } catch (const UsageError& error) {
    return failed(JERBOA_USAGE_ERROR, error.what());
  } catch (const FileError& error) {
    return failed(JERBOA_FILE_ERROR, error.what());
  } catch (const GraphError& error) {
    return failed(JERBOA_GRAPH_ERROR, error.what());
  } catch (const ShapeError& error) {
    return failed(JERBOA_SHAPE_ERROR, error.what());
  } catch (const OutOfMemoryError& error) {
    return failed(JERBOA_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(JERBOA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(JERBOA_OTHER_ERROR, error.what());
  } catch (...) {
    return failed(JERBOA_OTHER_ERROR, "an unknown error");
  }
}

}  // namespace

jerboa_status guarded(const std::function<void()>& body) {
  try {
    return status_of(body);
  } catch (...) {  // no memory for the message
    last_error.clear();
    return JERBOA_OUT_OF_MEMORY;
  }
}

std::string_view text_of(const char* text, std::size_t size, const char* what) {
  if (text == nullptr && size > 0) throw UsageError(std::string(what) + " is NULL");
  return {text == nullptr ? "" : text, size};
}

std::string_view bytes_of(const std::uint8_t* bytes, std::size_t size, const char* what) {
  return text_of(reinterpret_cast<const char*>(bytes), size, what);
}

void give(jerboa_buffer** out, std::string bytes) {
  jerboa_buffer*& place = handle(out, "the place for the result");  // checked before anything is allocated
  place = new jerboa_buffer{std::move(bytes)};
}

}  // namespace jerboa::c_api

using jerboa::c_api::last_error;

const char* jerboa_last_error() { return last_error.c_str(); }
const uint8_t* jerboa_buffer_data(const jerboa_buffer* buffer) {
  return buffer == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(buffer->bytes.data());
}
size_t jerboa_buffer_size(const jerboa_buffer* buffer) { return buffer == nullptr ? 0 : buffer->bytes.size(); }
void jerboa_buffer_free(jerboa_buffer* buffer) { delete buffer; }
uint32_t jerboa_abi_version() { return JERBOA_ABI_VERSION; }
const char* jerboa_version() { return JERBOA_VERSION; }
