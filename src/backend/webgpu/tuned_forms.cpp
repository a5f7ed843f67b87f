#include "backend/webgpu/tuned_forms.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>

#include <jerboa/base/file.h>

#include "backend/webgpu/pipeline_cache.h"
#include "base/crc32.h"
#include "wgsl/tuning/tuned_file.h"

namespace jerboa {
namespace webgpu {
namespace {

namespace fs = std::filesystem;

// The requested file; empty: none, not even the default one.
std::optional<fs::path> wanted_file(const WebGpuOptions& options) {
  if (options.tuned_forms) return options.tuned_forms;
  if (const char* file = std::getenv("JERBOA_TUNED"); file != nullptr) return file;
  return std::nullopt;
}

bool is_for(const wgsl::TunedFile& file, const AdapterInfo& adapter, const std::string& name) {
  if (file.device == adapter.name && file.driver == adapter.driver) return true;
  fmt::print(stderr, "jerboa: {} was tuned for {} ({}), not for {} ({}), and is ignored\n", name, file.device,
             file.driver, adapter.name, adapter.driver);
  return false;
}

// Nobody requested the default file explicitly, and another release may have written it, so it must not keep a device
// from opening.
std::shared_ptr<const wgsl::TunedForms> load_default(const fs::path& path, const AdapterInfo& adapter,
                                                     const Target& target) try {
  const std::string name = path.string();
  const wgsl::TunedFile file = wgsl::parse_tuned_file(FileContent(path).text(), name);
  if (!is_for(file, adapter, name)) return nullptr;
  const auto forms = wgsl::forms_of(file, target);
  if (const std::size_t unfit = file.kernels.size() - forms->forms().size(); unfit > 0)
    fmt::print(stderr,
               "jerboa: {}: {} of {} kernels are ignored because their forms do not fit this device; run jerboa tune "
               "again\n",
               name, unfit, file.kernels.size());
  return forms;
} catch (const FileError& error) {
  fmt::print(stderr, "jerboa: ignored: {}\n", error.what());
  return nullptr;
}

}  // namespace

std::shared_ptr<const wgsl::TunedForms> load_tuned_forms(const WebGpuOptions& options, const AdapterInfo& adapter,
                                                         const Target& target) {
  const std::optional<fs::path> path = wanted_file(options);
  if (!path) {
    const std::optional<fs::path> usual = default_tuned_forms(adapter);
    std::error_code failed;
    return usual && fs::exists(*usual, failed) ? load_default(*usual, adapter, target) : nullptr;
  }
  if (path->empty()) return nullptr;
  const std::string name = path->string();
  const wgsl::TunedFile file = wgsl::parse_tuned_file(FileContent(*path).text(), name);
  if (!is_for(file, adapter, name)) return nullptr;
  wgsl::check_forms(file, target, name);
  return wgsl::forms_of(file, target);
}

}  // namespace webgpu

std::optional<std::filesystem::path> default_tuned_forms(const AdapterInfo& adapter) {
  const auto pipelines = webgpu::default_pipeline_cache();
  if (!pipelines) return std::nullopt;
  std::string slug;
  for (const char c : adapter.name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  return pipelines->parent_path() / fmt::format("tuned-{}-{:08x}.json", slug, crc32(adapter.name + adapter.driver));
}

}  // namespace jerboa
