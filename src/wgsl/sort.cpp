#include "wgsl/lines.h"
#include "wgsl/sort_lines.h"
#include "wgsl/whole_kernels.h"

namespace jerboa::wgsl {
namespace {

LineKey key_of(const TensorAccess& x, const Lines& lines, bool descending) {
  return [&x, &lines, descending](Shader& shader, const std::string& line, const std::string& place) {
    return ordered_key(shader, x.dtype, shader.load(x, lines.indices(shader, line, place)), descending);
  };
}

}  // namespace

template <>
void write_whole_op<Op::top_k>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const auto& attrs = std::get<TopKAttrs>(kernel.attrs);
  const TensorAccess &x = kernel.operands[0], &values = kernel.results[0], &places = kernel.results[1];
  const Lines lines(x.shape, attrs.axis);
  select_lowest(writer, lines.count(), lines.length, attrs.k, key_of(x, lines, true),
                [&](Shader& shader, const std::string& line, const std::string& rank, const std::string& place) {
                  const auto to = lines.indices(shader, line, rank);
                  shader.store(values, to, shader.load(x, lines.indices(shader, line, place)));
                  shader.store(places, to, fmt::format("i32({})", place));
                });
}

template <>
void write_whole_op<Op::argsort>(KernelWriter& writer) {
  const KernelSpec& kernel = writer.kernel();
  const auto& attrs = std::get<ArgsortAttrs>(kernel.attrs);
  const TensorAccess &x = kernel.operands[0], &places = kernel.results[0];
  const Lines lines(x.shape, attrs.axis);
  select_lowest(writer, lines.count(), lines.length, lines.length, key_of(x, lines, attrs.descending),
                [&](Shader& shader, const std::string& line, const std::string& rank, const std::string& place) {
                  shader.store(places, lines.indices(shader, line, rank), fmt::format("i32({})", place));
                });
}

}  // namespace jerboa::wgsl
