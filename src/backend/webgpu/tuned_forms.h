#pragma once

#include <memory>

#include <jerboa/backend/webgpu.h>

namespace jerboa::webgpu {

/// The forms that were tuned for a device, from the file that the options or JERBOA_TUNED name, or from the default
/// one if there is one; null: none. A file for another device or driver is ignored, with a line on standard error.
/// Of the default file, what is damaged or does not fit the device is ignored too. Throws FileError for another that is
/// missing or damaged, or does not fit.
std::shared_ptr<const wgsl::TunedForms> load_tuned_forms(const WebGpuOptions& options, const AdapterInfo& adapter,
                                                         const Target& target);

}  // namespace jerboa::webgpu
