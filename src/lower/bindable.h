#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Throws UsageError if a tensor is too large for a kernel to bind, even in parts: the message names the tensor, the
/// target's limit and the remedy.
void refuse_unbindable_tensors(const Program& program, const Graph& graph, const Target& target);

/// Throws that error for a tensor of this many bytes. `tensor` is its name and type, `kernel` the kernel's results.
[[noreturn]] void refuse_binding(const std::string& tensor, std::int64_t bytes, const std::string& kernel, int bindings,
                                 const Target& target);

/// Throws OutOfMemoryError if a tensor, or the activations of the plan, are larger than any memory: the message names
/// the largest tensor.
void refuse_tensors_without_room(const Program& program, const Graph& graph);

}  // namespace jerboa::detail
