#pragma once

#include "backend/webgpu/gpu_device.h"
#include "backend/webgpu/pipeline_cache.h"

namespace jerboa::webgpu {

/// How many workgroups of 128 threads and 24 KiB the device runs concurrently, which WebGPU does not report: counted by
/// a shader that takes less than a millisecond. 0 if the device does not allow such workgroups or runs more of them
/// than are counted.
int measure_resident_workgroups(GpuDevice& device);

/// The same, measured once for each device and driver and kept in the cache. Null: no cache.
int resident_workgroups(GpuDevice& device, PipelineCache* cache);

}  // namespace jerboa::webgpu
