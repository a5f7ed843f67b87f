#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::detail {

/// Throws UsageError where a kernel cannot bind a tensor because it is too large, in however many parts: it names the
/// tensor, what the target allows and the remedy.
void refuse_unbindable_tensors(const Program& program, const Graph& graph, const Target& target);

/// The error itself, for a tensor of so many bytes. `tensor` is its name and type, `kernel` what is computed with it.
[[noreturn]] void refuse_binding(const std::string& tensor, std::int64_t bytes, const std::string& kernel, int bindings,
                                 const Target& target);

}  // namespace jerboa::detail
