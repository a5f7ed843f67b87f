#include "backend/webgpu/library_warnings.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace jerboa::webgpu {
namespace {

// Standard error belongs to the process, so captures take turns.
std::recursive_mutex& capture_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}
int captures = 0;

std::string read_all(int file) {
  std::string text(static_cast<std::size_t>(std::max<off_t>(lseek(file, 0, SEEK_END), 0)), '\0');
  const ssize_t count = pread(file, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

void print_without_warnings(std::string_view text) {
  const bool all = std::getenv("JERBOA_DEBUG") != nullptr;
  bool in_warning = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    // A warning may continue in lines that are indented or empty.
    in_warning = line.starts_with("Warning: ") || (in_warning && (line.starts_with(' ') || line == "\n"));
    if (all || !in_warning) std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

}  // namespace

LibraryWarnings::LibraryWarnings() {
  capture_mutex().lock();
  if (++captures > 1) return;
  std::fflush(stderr);
  captured_ = memfd_create("jerboa-webgpu-warnings", MFD_CLOEXEC);
  saved_ = captured_ < 0 ? -1 : dup(STDERR_FILENO);
  if (saved_ >= 0) dup2(captured_, STDERR_FILENO);
}

LibraryWarnings::~LibraryWarnings() {
  if (saved_ >= 0) {
    std::fflush(stderr);
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    print_without_warnings(read_all(captured_));
  }
  if (captured_ >= 0) close(captured_);
  --captures;
  capture_mutex().unlock();
}

}  // namespace jerboa::webgpu
