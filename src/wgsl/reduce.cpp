#include <algorithm>

#include "lower/reduce_parts.h"
#include "wgsl/body.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/row_reduction.h"

// Reductions of whole tensors, or over axes that are not the last. A workgroup is a block of kept elements × threads
// that share each one's reduced elements. Where few elements are kept and many reduced, the latter are cut into chunks
// whose partial results a second shader combines; how depends only on the sizes.
namespace jerboa::wgsl {
namespace {

struct Split {
  int kept_lanes = 1, reduced_lanes = 1;
  std::int64_t chunks = 1;
};

Split split(Op op, bool along_kept, std::int64_t kept, std::int64_t reduced, const Target& target) {
  Split split;
  const int threads = std::min(target.max_invocations, target.software ? 32 : 256);
  if (along_kept)
    while (split.kept_lanes < std::min<std::int64_t>(threads, 32) && split.kept_lanes < kept) split.kept_lanes *= 2;
  while (split.kept_lanes * split.reduced_lanes < threads && std::int64_t{split.reduced_lanes} * 4 < reduced)
    split.reduced_lanes *= 2;
  if (op == Op::argmax) return split;
  // For few elements a second shader would cost more than it saves.
  constexpr std::int64_t few = 2048;
  if (reduced <= few) {
    while (along_kept && split.kept_lanes > 8 && std::int64_t{split.reduced_lanes} * 8 < reduced) {
      split.kept_lanes /= 2;
      split.reduced_lanes *= 2;
    }
    return split;
  }
  // Enough workgroups to fill a device, and enough elements for each thread to be worth it.
  const std::int64_t groups = (kept + split.kept_lanes - 1) / split.kept_lanes;
  constexpr std::int64_t wanted_groups = 256;
  while (groups * split.chunks < wanted_groups && split.chunks * split.reduced_lanes * 16 < reduced &&
         split.chunks < 256)
    split.chunks *= 2;
  return split;
}

}  // namespace

void write_reduce(KernelWriter& writer) {
  const KernelSpec kernel = merge_axes(writer.kernel());
  const std::vector<Dim> kept(kernel.domain.begin(), kernel.domain.end() - kernel.row_axes);
  const std::vector<Dim> reduced(kernel.domain.end() - kernel.row_axes, kernel.domain.end());
  const Dim kept_count = element_count(kept), reduced_count = element_count(reduced);
  const int number = detail::reduction_of(kernel);
  const Instruction& reduction = kernel.body[static_cast<std::size_t>(number)];
  const Split parts = split(reduction.op, detail::runs_along_kept(detail::split_reduce(kernel).elements),
                            kept_count.upper_bound(), reduced_count.upper_bound(), writer.target());
  const int threads = parts.kept_lanes * parts.reduced_lanes;
  const DType dtype = kernel.body[static_cast<std::size_t>(reduction.a)].dtype;
  const DType partial_type = reduction.op == Op::all_finite ? DType::boolean : dtype;
  // What the body computes from a result, and its stores.
  const auto finish = [&](Shader& shader, const std::string& result, std::vector<std::string> indices) {
    indices.resize(kernel.domain.size(), "0u");
    BodyWriter body(shader, kernel, std::move(indices));
    body.set(number, result);
    for (const Store& store : kernel.stores) body.value(store.value);
    for (const Store& store : kernel.stores) body.store(store);
  };
  const int partials = parts.chunks > 1 ? writer.workspace(partial_type, kept_count * Dim(parts.chunks)) : -1;

  Shader shader = writer.shader("reduce", threads);
  // Adjacent threads read adjacent elements.
  shader.line("let part_lane = lane / {}u;", parts.kept_lanes);
  shader.line("let chunk = group % {}u;", parts.chunks);
  shader.line("let wanted = (group / {}u) * {}u + lane % {}u;", parts.chunks, parts.kept_lanes, parts.kept_lanes);
  shader.line("let in_range = wanted < {};", shader.size(kept_count));
  shader.line("let element = min(wanted, {} - 1u);", shader.size(kept_count));
  std::vector<std::string> kept_indices = shader.split_index("element", kept);
  RowReduction total(shader, reduction.op, dtype);
  const std::string chunk_size =
      parts.chunks == 1 ? shader.size(reduced_count) : shader.size(groups_of(reduced_count, parts.chunks));
  shader.line("let first = chunk * {};", chunk_size);
  shader.line("let end = min(first + {}, {});", chunk_size, shader.size(reduced_count));
  shader.open("for (var place = first + part_lane; place < end; place += {}u) {{", parts.reduced_lanes);
  std::vector<std::string> indices = kept_indices;
  for (const std::string& index : shader.split_index("place", reduced)) indices.push_back(index);
  BodyWriter body(shader, kernel, std::move(indices));
  total.add(body.value(reduction.a), "place");
  shader.close();
  const std::string result = total.finish(parts.reduced_lanes, "part_lane", threads, parts.kept_lanes);
  shader.open("if (in_range && part_lane == 0u) {{");
  if (partials < 0)
    finish(shader, result, kept_indices);
  else
    shader.store(partials, fmt::format("element * {}u + chunk", parts.chunks), result);
  shader.close();
  writer.add(shader, groups_of(kept_count, parts.kept_lanes) * Dim(parts.chunks));
  if (partials < 0) return;

  // Partial results of bools are combined like any others.
  Shader last = writer.shader("reduce_parts", 64);
  last.line("let element = group * 64u + lane;");
  last.line("if (element >= {}) {{ return; }}", last.size(kept_count));
  const std::string sum = last.var("total", value_type(partial_type), neutral(reduction.op, dtype));
  last.open("for (var chunk = 0u; chunk < {}u; chunk++) {{", parts.chunks);
  last.line("{} = {};", sum,
            combine(reduction.op, dtype, sum, last.load(partials, fmt::format("element * {}u + chunk", parts.chunks))));
  last.close();
  finish(last, sum, last.split_index("element", kept));
  writer.add(last, groups_of(kept_count, 64));
}

}  // namespace jerboa::wgsl
