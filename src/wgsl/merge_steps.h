#pragma once

#include <utility>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// A step of a program before its shader has a number.
struct WrittenStep {
  GpuStep step;
  Shader::Finished shader;  ///< empty for copies
  int beside = -1;  ///< steps with the same number use no element that another of them writes; -1: no other step
  /// Of the program's parts that it computes, in phases.
  std::vector<std::pair<std::size_t, double>> operations_of = {};
};

/// Orders the steps so that independent ones follow each other, and merges those of them that are small into one
/// dispatch: on a GPU each dispatch that writes waits for the one before, about 2 µs on an H200, whatever it does.
/// `splits`: steps of fewer threads, which do not depend on each other, may run several workgroups in one of a step of
/// more.
std::vector<WrittenStep> order_and_merge(const Program& program, std::vector<WrittenStep> steps, const Target& target,
                                         bool splits);

}  // namespace jerboa::wgsl
