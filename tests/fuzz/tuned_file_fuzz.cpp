// Whatever a file of `jerboa tune` contains, it is refused with a FileError, or is the same after it was written and
// read again, and yields only forms that the device supports.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <jerboa/base/error.h>

#include "wgsl/tuning/tuned_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jerboa;
  const Target target = Target::webgpu_default();
  try {
    const wgsl::TunedFile file = wgsl::parse_tuned_file({reinterpret_cast<const char*>(data), size}, "tuned.json");
    const std::string again = wgsl::to_json(file);
    if (wgsl::to_json(wgsl::parse_tuned_file(again, "again.json")) != again) std::abort();
    if (wgsl::forms_of(file, target)->forms().size() > file.kernels.size()) std::abort();
    wgsl::check_forms(file, target, "tuned.json");
  } catch (const FileError&) {
  }
  return 0;
}
