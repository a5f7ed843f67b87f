#include "backend/webgpu/dawn.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <mutex>
#include <vector>

#include <jerboa/base/error.h>

namespace jerboa::webgpu {
namespace {

constexpr const char* library_name = "libwebgpu_dawn.so";

std::vector<std::string> candidates(const std::string& path) {
  if (!path.empty()) return {path};
  if (const char* named = std::getenv("JERBOA_WEBGPU_LIBRARY"); named != nullptr && *named != '\0') return {named};
  std::vector<std::string> paths;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) paths.push_back((program.parent_path() / library_name).string());
  paths.emplace_back(library_name);
  return paths;
}

}  // namespace

void Dawn::find_functions(void* library, const std::string& path) {
#define JERBOA_FIND(name)                                                \
  name = reinterpret_cast<decltype(name)>(dlsym(library, "wgpu" #name)); \
  if (name == nullptr)                                                   \
    throw DeviceError(fmt::format(                                       \
        "{} has no function wgpu" #name ": it is not the version of Dawn that Jerboa was built for", path));
  JERBOA_WEBGPU_FUNCTIONS(JERBOA_FIND)
#undef JERBOA_FIND
}

std::shared_ptr<const Dawn> Dawn::open(const std::string& path) {
  // Opened libraries are never closed: Dawn's threads may outlive us.
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Dawn>> opened;
  const std::scoped_lock lock(mutex);
  if (const auto found = opened.find(path); found != opened.end()) return found->second;
  std::vector<std::string> failures;
  for (const std::string& candidate : candidates(path)) {
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      failures.emplace_back(dlerror());
      continue;
    }
    auto dawn = std::make_shared<Dawn>();
    dawn->find_functions(library, candidate);
    opened[path] = dawn;
    return dawn;
  }
  throw DeviceError(
      fmt::format("WebGPU needs {}, which could not be opened ({}); ./dev setup installs it, or set "
                  "JERBOA_WEBGPU_LIBRARY to its path",
                  library_name, fmt::join(failures, "; ")));
}

}  // namespace jerboa::webgpu
