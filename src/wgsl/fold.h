#pragma once

#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// A part of a program with the kernels that it computes itself.
struct FoldedPart {
  int kernel = 0;
  std::vector<int> buffers;  ///< by binding, followed by those of the folded kernels
  std::string label;
  FoldedKernels folded;
  std::string key;  ///< what was folded, to tell apart parts of the same kernel
  int dispatch = 0;
};

/// The memory behind buffers, as shaders see it.
std::vector<ShaderMemory> memories_of(const Program& program, const std::vector<int>& buffers);

/// The parts of a program in their order, where a kernel whose results are read by few others is computed by these if
/// that is cheaper than a dispatch: on a GPU each costs about 2 µs, which is as much as a token's part of it takes.
std::vector<FoldedPart> fold_kernels(const Program& program, const Target& target);

}  // namespace jerboa::wgsl
