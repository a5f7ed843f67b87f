#pragma once

#include <limits>
#include <memory>

#include <jerboa/frontend/compile.h>
#include <jerboa/runtime/device.h>

namespace jerboa::cli {

/// How fast a GPU runs just now. Its clock falls while the host compiles, to a fifth and less, and takes some tenths of
/// a second under load to come back: what is timed before that is timed wrong. The measure is a product of fixed size.
class GpuClock {
 public:
  /// Compiles the product. On devices that are no GPUs, nothing is ever run and the clock is always at its best.
  explicit GpuClock(const Device& device);

  /// Keeps the device busy until it no longer becomes faster, 0.4 s at least.
  void warm();
  /// The speed now, as a part of the best that was seen.
  double speed();

 private:
  double seconds();

  std::shared_ptr<Module> product_;
  double best_ = std::numeric_limits<double>::max();
};

}  // namespace jerboa::cli
