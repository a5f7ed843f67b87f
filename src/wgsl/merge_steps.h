#pragma once

#include <utility>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// A step of a program whose shader has no number yet.
struct WrittenStep {
  GpuStep step;
  Shader::Finished shader;  ///< empty for copies
  int beside = -1;  ///< steps with the same number use no element that another of them writes; -1: no other step
  /// The operations of the program's parts that it computes, in phases.
  std::vector<std::pair<std::size_t, double>> operations_of = {};
};

/// Orders the steps so that independent ones are adjacent, and merges small ones into one dispatch: on a GPU each
/// dispatch that writes waits for the one before, about 2 µs on an H200, however little it does. `splits`: independent
/// steps with fewer threads per workgroup may run several workgroups inside one of a step with more.
std::vector<WrittenStep> order_and_merge(const Program& program, std::vector<WrittenStep> steps, const Target& target,
                                         bool splits);

}  // namespace jerboa::wgsl
