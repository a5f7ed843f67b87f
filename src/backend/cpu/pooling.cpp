#include "backend/cpu/pooling.h"

#include <algorithm>
#include <limits>

#include "base/integers.h"

namespace jerboa::cpu {
namespace {

// Several planes per task, so that scheduling small ones does not cost more than computing them.
template <class Work>
void for_each_plane(const Pooling& p, ThreadPool& pool, Work work) {
  const std::int64_t area = std::max<std::int64_t>(p.in[0] * p.in[1], 1);
  const std::int64_t planes_per_task = std::clamp<std::int64_t>(16384 / area, 1, std::max<std::int64_t>(p.planes, 1));
  pool.run(detail::divide_up(p.planes, planes_per_task), [&](std::int64_t task, int) {
    const std::int64_t end = std::min((task + 1) * planes_per_task, p.planes);
    for (std::int64_t plane = task * planes_per_task; plane < end; ++plane)
      work(plane * p.in[0] * p.in[1], plane * p.out[0] * p.out[1]);
  });
}

// Calls visit(out, in, count) for each row of windows and each offset in them that lies inside the image: windows out,
// out + 1, … of the plane read the elements in, in + stride, … there.
template <class Visit>
void for_each_run(const Pooling& p, Visit visit) {
  for (std::int64_t row = 0; row < p.out[0]; ++row)
    for (std::int64_t i = 0; i < p.kernel[0]; ++i) {
      const std::int64_t y = row * p.stride[0] - p.padding[0] + i;
      if (y < 0 || y >= p.in[0]) continue;
      for (std::int64_t j = 0; j < p.kernel[1]; ++j) {
        const std::int64_t shift = j - p.padding[1];
        const std::int64_t from = std::min(detail::divide_up(-shift, p.stride[1]), p.out[1]);
        const std::int64_t to = std::clamp(detail::divide_up(p.in[1] - shift, p.stride[1]), from, p.out[1]);
        if (from < to) visit(row * p.out[1] + from, y * p.in[1] + from * p.stride[1] + shift, to - from);
      }
    }
}

// NaN counts as the largest value, so that it propagates.
bool exceeds(float a, float b) { return a > b || (a != a && b == b); }

}  // namespace

void run_max_pool2d(const Pooling& p, const float* x, float* y, ThreadPool& pool) {
  for_each_plane(p, pool, [&](std::int64_t x_at, std::int64_t y_at) {
    std::fill_n(y + y_at, p.out[0] * p.out[1], -std::numeric_limits<float>::infinity());
    for_each_run(p, [&](std::int64_t out, std::int64_t in, std::int64_t count) {
      float* to = y + y_at + out;
      const float* from = x + x_at + in;
      for (std::int64_t i = 0; i < count; ++i)
        to[i] = exceeds(from[i * p.stride[1]], to[i]) ? from[i * p.stride[1]] : to[i];
    });
  });
}

void run_max_pool2d_grad(const Pooling& p, const float* x, const float* dy, float* dx, ThreadPool& pool) {
  for_each_plane(p, pool, [&](std::int64_t x_at, std::int64_t y_at) {
    const float* image = x + x_at;
    float* to = dx + x_at;
    std::fill_n(to, p.in[0] * p.in[1], 0.0F);
    for (std::int64_t row = 0; row < p.out[0]; ++row) {
      const std::int64_t top = row * p.stride[0] - p.padding[0];
      const std::int64_t y_begin = std::max<std::int64_t>(top, 0), y_end = std::min(top + p.kernel[0], p.in[0]);
      for (std::int64_t column = 0; column < p.out[1]; ++column) {
        const std::int64_t left = column * p.stride[1] - p.padding[1];
        const std::int64_t x_begin = std::max<std::int64_t>(left, 0), x_end = std::min(left + p.kernel[1], p.in[1]);
        if (y_begin >= y_end || x_begin >= x_end) continue;
        std::int64_t best = y_begin * p.in[1] + x_begin;
        for (std::int64_t i = y_begin; i < y_end; ++i)
          for (std::int64_t j = i * p.in[1] + x_begin; j < i * p.in[1] + x_end; ++j)
            best = exceeds(image[j], image[best]) ? j : best;
        to[best] += dy[y_at + row * p.out[1] + column];
      }
    }
  });
}

void run_avg_pool2d(const Pooling& p, const float* x, float* y, ThreadPool& pool) {
  const float share = 1 / static_cast<float>(p.kernel[0] * p.kernel[1]);
  for_each_plane(p, pool, [&](std::int64_t x_at, std::int64_t y_at) {
    float* plane = y + y_at;
    std::fill_n(plane, p.out[0] * p.out[1], 0.0F);
    for_each_run(p, [&](std::int64_t out, std::int64_t in, std::int64_t count) {
      const float* from = x + x_at + in;
      for (std::int64_t i = 0; i < count; ++i) plane[out + i] += from[i * p.stride[1]];
    });
    for (std::int64_t i = 0; i < p.out[0] * p.out[1]; ++i) plane[i] *= share;
  });
}

void run_avg_pool2d_grad(const Pooling& p, const float* dy, float* dx, ThreadPool& pool) {
  const float share = 1 / static_cast<float>(p.kernel[0] * p.kernel[1]);
  for_each_plane(p, pool, [&](std::int64_t x_at, std::int64_t y_at) {
    std::fill_n(dx + x_at, p.in[0] * p.in[1], 0.0F);
    for_each_run(p, [&](std::int64_t out, std::int64_t in, std::int64_t count) {
      float* to = dx + x_at + in;
      const float* from = dy + y_at + out;
      for (std::int64_t i = 0; i < count; ++i) to[i * p.stride[1]] += from[i] * share;
    });
  });
}

}  // namespace jerboa::cpu
