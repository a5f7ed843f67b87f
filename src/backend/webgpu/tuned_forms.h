#pragma once

#include <memory>

#include <jerboa/backend/webgpu.h>

namespace jerboa::webgpu {

/// The forms that were tuned for a device, from the file that the options or JERBOA_TUNED name, or from the default one
/// if it exists; null: none. A file for another device or driver is ignored, with a line on standard error. In the
/// default file, entries that are damaged or do not fit the device are ignored too. Throws FileError for any other file
/// that is missing or damaged, or does not fit.
std::shared_ptr<const wgsl::TunedForms> load_tuned_forms(const WebGpuOptions& options, const AdapterInfo& adapter,
                                                         const Target& target);

}  // namespace jerboa::webgpu
