#pragma once

#include "backend/webgpu/dawn.h"
#include "backend/webgpu/gpu_device.h"

namespace jerboa::test {

/// The library that devices are made of, for tests that call it by themselves.
inline const webgpu::Dawn& library() {
  static const std::shared_ptr<const webgpu::Dawn> dawn = webgpu::Dawn::open("");
  return *dawn;
}

}  // namespace jerboa::test
