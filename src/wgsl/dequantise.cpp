#include "wgsl/dequantise.h"

#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {

std::string QuantisedWeight::value(Shader& shader, const std::string& index) const {
  const std::string group = fmt::format("{} / {}u", index, quantised_group);
  std::string value = fmt::format("{} * {}", shader.load(weight.binding, index), shader.load(scales.binding, group));
  if (mins.binding >= 0) value = fmt::format("({} + {})", value, shader.load(mins.binding, group));
  return value;
}

template <>
void write_whole_op<Op::dequantise>(KernelWriter& writer) {
  const QuantisedWeight quantised(writer.kernel(), 0);
  const Dim count = element_count(quantised.weight.shape);
  Shader shader = shader_of_elements(writer, "dequantise", count);
  const std::string value = quantised.value(shader, "element");
  shader.store(writer.kernel().results[0].binding, "element", value);
  add_shader_of_elements(writer, std::move(shader), count);
}

template <>
void write_whole_op<Op::embedding_quantised>(KernelWriter& writer) {
  const QuantisedWeight quantised(writer.kernel(), 0);
  const TensorAccess &ids = writer.kernel().operands[3], &result = writer.kernel().results[0];
  const Dim count = element_count(result.shape), &rows = quantised.weight.shape[0], &width = quantised.weight.shape[1];
  Shader shader = shader_of_elements(writer, "embedding_quantised", count);
  shader.line("let place = element / {0}; let column = element % {0};", shader.size(width));
  std::vector<std::string> indices = shader.split_index("place", ids.shape);
  // Ids out of range read an arbitrary row.
  shader.line("let row = min(u32(max(i32({}), 0i)), {} - 1u);", shader.load(ids, indices), shader.size(rows));
  shader.line("let index = row * {} + column;", shader.size(width));
  indices.emplace_back("column");
  const std::string value = quantised.value(shader, "index");
  shader.store(result, indices, value);
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace jerboa::wgsl
