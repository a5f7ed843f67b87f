#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {

template <>
void write_whole_op<Op::dequantise>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess &weight = kernel.operands[0], &scales = kernel.operands[1], &result = kernel.results[0];
  const Dim count = element_count(weight.shape);
  Shader shader = shader_of_elements(writer, "dequantise", count);
  shader.store(result.binding, "element",
               fmt::format("{} * {}", shader.load(weight.binding, "element"),
                           shader.load(scales.binding, fmt::format("element / {}u", quantised_group))));
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace jerboa::wgsl
