#pragma once

#include "backend/webgpu/dawn.h"
#include "backend/webgpu/gpu_device.h"

namespace jerboa::test {

/// The library behind devices, for tests that call it directly.
inline const webgpu::Dawn& library() {
  static const std::shared_ptr<const webgpu::Dawn> dawn = webgpu::Dawn::open("");
  return *dawn;
}

}  // namespace jerboa::test
