#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

int KernelWriter::workspace(DType dtype, const Dim& elements) {
  memories_.push_back(
      {dtype, elements.upper_bound() * bits(dtype) / 8, "workspace", workspace_access_, elements.is_constant()});
  return static_cast<int>(memories_.size()) - 1;
}

void KernelWriter::add(Shader shader, const Dim& workgroups, OperationShare operations) {
  // A shader that never runs may divide by a size of 0, which does not compile.
  if (workgroups == Dim(0)) return;
  Shader::Finished finished = shader.finish(workgroups);
  steps_.push_back({std::move(finished), workgroups, operations, shader.uses_f16(), shader.uses_subgroups(),
                    shader.uses_subgroup_matrices()});
}

void KernelWriter::add_beside(Shader shader, const Dim& workgroups, OperationShare operations) {
  const std::size_t before = steps_.size();
  add(std::move(shader), workgroups, operations);
  if (steps_.size() > before) steps_.back().beside_previous = before > 0;
}

}  // namespace jerboa::wgsl
