#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {

template <>
void write_whole_op<Op::dequantise>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const TensorAccess &weight = kernel.operands[0], &scales = kernel.operands[1], &result = kernel.results[0];
  const Dim count = element_count(weight.shape);
  Shader shader = shader_of_elements(writer, "dequantise", count);
  const std::string group = fmt::format("element / {}u", quantised_group);
  std::string value =
      fmt::format("{} * {}", shader.load(weight.binding, "element"), shader.load(scales.binding, group));
  if (const TensorAccess& mins = kernel.operands[2]; mins.binding >= 0)
    value += fmt::format(" + {}", shader.load(mins.binding, group));
  shader.store(result.binding, "element", value);
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace jerboa::wgsl
