#pragma once

#include <memory>
#include <optional>

#include <jerboa/backend/backend.h>
#include <jerboa/lower/program.h>

namespace jerboa {

struct CpuOptions {
  int threads = 0;                ///< 0: one a core
  Target target = Target::cpu();  ///< with fusion and memory planning switched off, for comparisons
  std::optional<float> sentinel;  ///< for tests: activations hold this before each run
  bool guard = false;             ///< for tests: a dispatch that writes what is not its own is an error
};

/// The engine that is always there: fused kernels on SIMD and threads. Results do not depend on the number of threads.
std::shared_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

}  // namespace jerboa
