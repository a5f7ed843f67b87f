#pragma once

#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// A part of a program, with other kernels that it computes itself.
struct FoldedPart {
  int kernel = 0;
  std::vector<int> buffers;  ///< by binding, followed by those of the folded kernels
  std::string label;
  FoldedKernels folded;
  std::string key;  ///< identifies the folded kernels, to tell parts of the same kernel apart
  int dispatch = 0;
};

/// The memories of buffers, as shaders see them.
std::vector<ShaderMemory> memories_of(const Program& program, const std::vector<int>& buffers);

/// The parts of a program in order. A kernel whose results few others read is computed by its readers if that is
/// cheaper than a dispatch: each costs about 2 µs on a GPU, as much as a kernel's work for one token.
std::vector<FoldedPart> fold_kernels(const Program& program, const Target& target);

}  // namespace jerboa::wgsl
