#pragma once

#include <memory>
#include <optional>

#include <jerboa/backend/backend.h>
#include <jerboa/lower/program.h>

namespace jerboa {

struct CpuOptions {
  int threads = 0;  ///< 0: one per core
  /// Products of a few rows with int8 or int4 weights round each group of 32 values of a row to 8 bits, like its
  /// weights, which is faster; otherwise they are computed in f32. Device::cpu turns it on.
  bool integer_products = false;
  Target target = Target::cpu();  ///< fusion and memory planning can be turned off, for comparisons
  std::optional<float> sentinel;  ///< for tests: activations are filled with this before each run
  bool guard = false;             ///< for tests: a dispatch that writes outside its results is an error
};

/// The engine that is always available: fused kernels using SIMD and threads. Results do not depend on the number of
/// threads.
std::shared_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace jerboa
