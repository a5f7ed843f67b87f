#pragma once

#include <functional>
#include <string_view>

#include "backend/webgpu/gpu_device.h"
#include "backend/webgpu/pipeline_cache.h"

namespace jerboa::webgpu {

/// How many workgroups of 128 threads and 24 KiB the device runs concurrently, which WebGPU does not report: counted by
/// a shader that takes less than a millisecond, once for each device and driver, and kept in the cache (null: none). 0
/// is unknown: the device does not allow such workgroups, runs more of them than are counted, or is so busy with other
/// work that the count varies. What varies is not kept, because the forms of kernels depend on it.
int resident_workgroups(GpuDevice& device, PipelineCache* cache);

/// The number under this key in the cache or else what `count` gives, if it gives the same several times; 0 if not.
int known_count(PipelineCache* cache, std::string_view key, const std::function<int()>& count);

}  // namespace jerboa::webgpu
