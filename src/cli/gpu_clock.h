#pragma once

#include <limits>
#include <memory>

#include <jerboa/frontend/compile.h>
#include <jerboa/runtime/device.h>

namespace jerboa::cli {

/// Measures a GPU's current speed by a product of fixed size. The GPU's clock drops to a fifth or less while the host
/// compiles, and takes a few tenths of a second under load to recover; timings taken before that are wrong.
class GpuClock {
 public:
  /// Compiles the product. On other devices nothing is run, and the clock is always at full speed.
  explicit GpuClock(const Device& device);

  /// Keeps the device busy for at least 0.4 s, until it no longer gets faster.
  void warm();
  /// The current speed as a fraction of the highest one seen.
  double speed();

 private:
  double seconds();

  std::shared_ptr<Module> product_;
  double best_ = std::numeric_limits<double>::max();
};

}  // namespace jerboa::cli
