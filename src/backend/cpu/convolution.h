#pragma once

#include <array>
#include <cstdint>

#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// A 2D convolution of contiguous [batch, channels, height, width] images. Pairs are vertical, horizontal.
struct Convolution {
  std::int64_t batch = 0, channels = 0, out_channels = 0;
  std::array<std::int64_t, 2> in{}, out{}, kernel{};  ///< height and width
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
};

/// y [batch, out_channels, out…] from x [batch, channels, in…] and weight [out_channels, channels / groups, kernel…];
/// bias [out_channels] or null.
void run_conv2d(const Convolution& conv, const float* x, const float* weight, const float* bias, float* y,
                ThreadPool& pool);
void run_conv2d_input_grad(const Convolution& conv, const float* dy, const float* weight, float* dx, ThreadPool& pool);
void run_conv2d_weight_grad(const Convolution& conv, const float* x, const float* dy, float* dweight, ThreadPool& pool);

}  // namespace jerboa::cpu
