#include <algorithm>
#include <fmt/ranges.h>

#include "base/integers.h"
#include "lower/reduce_parts.h"
#include "wgsl/body.h"
#include "wgsl/four_writer.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/row_reduction.h"
#include "wgsl/tuned.h"

// Reductions of whole tensors, or over axes other than the last. A workgroup is a block of kept elements × threads that
// share each one's reduced elements. If few elements are kept and many reduced, the latter are split into chunks whose
// partial results a second shader combines; the split depends only on the sizes.
namespace jerboa::wgsl {
namespace {

constexpr int small_threads = 128;  // of a workgroup, where the elements are few

// How the work is divided. Each thread reduces `width` kept elements, adjacent in memory, together.
struct Split {
  int width = 1, kept_lanes = 1, reduced_lanes = 1;
  std::int64_t chunks = 1;

  int threads() const { return kept_lanes * reduced_lanes; }
};

Split split(Op op, bool along_kept, int width, std::int64_t kept, std::int64_t reduced, const Target& target) {
  Split split;
  split.width = width;
  const bool is_small = !target.software && kept * reduced <= std::int64_t{1} << 21;
  const int threads = std::min(target.max_invocations, target.software ? 32 : is_small ? small_threads : 256);
  const std::int64_t kept_groups = detail::divide_up(kept, width);
  if (along_kept)
    while (split.kept_lanes < std::min<std::int64_t>(threads, 32) && split.kept_lanes < kept_groups)
      split.kept_lanes *= 2;
  while (split.threads() < threads && std::int64_t{split.reduced_lanes} * 4 < reduced) split.reduced_lanes *= 2;
  // Fills the workgroup, so that others can share its dispatch.
  if (along_kept && !target.software)
    while (split.threads() < threads && split.kept_lanes < kept_groups) split.kept_lanes *= 2;
  if (op == Op::argmax) return split;
  // For few elements a second shader would cost more than it saves.
  constexpr std::int64_t few = 2048;
  if (reduced <= few) {
    while (along_kept && split.kept_lanes > (is_small ? 4 : 8) && std::int64_t{split.reduced_lanes} * 8 < reduced) {
      split.kept_lanes /= 2;
      split.reduced_lanes *= 2;
    }
    return split;
  }
  // Enough workgroups to fill a device, and enough elements per thread to be worthwhile.
  const std::int64_t groups = detail::divide_up(kept_groups, split.kept_lanes);
  constexpr std::int64_t wanted_groups = 256;
  while (groups * split.chunks < wanted_groups && split.chunks * split.reduced_lanes * 16 < reduced &&
         split.chunks < 256)
    split.chunks *= 2;
  return split;
}

// Gives workgroups that share the dispatch of products with more threads more of the kept elements: the way the
// elements of a sum are split must not depend on other kernels.
Split widened(Split split, const KernelWriter& writer) {
  if (split.kept_lanes > 1 && split.threads() == small_threads && writer.row_threads() > small_threads)
    split.kept_lanes *= writer.row_threads() / small_threads;
  return split;
}

class ReduceWriter {
 public:
  explicit ReduceWriter(KernelWriter& writer)
      : writer_(writer),
        kernel_(merge_axes(writer.kernel())),
        kept_(kernel_.domain.begin(), kernel_.domain.end() - kernel_.row_axes),
        reduced_(kernel_.domain.end() - kernel_.row_axes, kernel_.domain.end()),
        number_(detail::reduction_of(kernel_)),
        op_(kernel_.body[static_cast<std::size_t>(number_)].op),
        operand_(kernel_.body[static_cast<std::size_t>(number_)].a),
        dtype_(kernel_.body[static_cast<std::size_t>(operand_)].dtype),
        elements_(detail::split_reduce(kernel_).elements),
        split_(split(op_, detail::runs_along_kept(elements_), width(), element_count(kept_).upper_bound(),
                     element_count(reduced_).upper_bound(), writer.target())) {
    const Target& target = writer.target();
    const std::optional<ColumnShape> columns =
        target.tuned != nullptr && target.fixed_threads == 0 ? shape() : std::nullopt;
    const ColumnForm* tuned = columns ? target.tuned->form_of(*columns) : nullptr;
    // Keeps the number of threads, so that the shader can share a dispatch with the same others.
    if (tuned != nullptr && split_.threads() % tuned->kept_lanes == 0)
      split_ = {split_.width, tuned->kept_lanes, split_.threads() / tuned->kept_lanes, tuned->chunks};
    split_ = widened(split_, writer);
  }

  std::optional<ColumnShape> shape() const {
    if (writer_.target().software || op_ == Op::argmax || !detail::runs_along_kept(elements_)) return std::nullopt;
    return ColumnShape{element_count(kept_).upper_bound(), element_count(reduced_).upper_bound(), split_.width};
  }

  void write() {
    if (split_.chunks > 1) partials_ = writer_.workspace(partial_type(), element_count(kept_) * Dim(split_.chunks));
    write_chunks();
    if (split_.chunks > 1) write_last();
  }

 private:
  // Partial results of 16-bit floats are not rounded.
  DType partial_type() const {
    if (op_ == Op::all_finite) return DType::boolean;
    return is_float(dtype_) ? DType::f32 : dtype_;
  }

  // Sums of columns read four columns of a row at once.
  int width() const {
    Shader shader = writer_.shader("reduce", 1);
    return !kept_.empty() && has(op_, Trait::Folds) && is_float(dtype_) &&
                   suits_fours(shader, elements_, kept_.size() - 1)
               ? 4
               : 1;
  }

  // Declares `element`, the first of the kept elements that a thread reduces, and `in_range`. Threads past the last one
  // repeat it.
  void write_element(Shader& shader, const std::string& group, int lanes) {
    const std::string count = shader.size(element_count(kept_));
    shader.line("let wanted = ({} * {}u + lane % {}u) * {}u;", group, lanes, lanes, split_.width);
    shader.line("let in_range = wanted < {};", count);
    shader.line("let element = min(wanted, {} - {}u);", count, split_.width);
  }

  // Adjacent threads read adjacent elements.
  void write_chunks() {
    Shader shader = writer_.shader(split_.width == 4 ? "reduce_fours" : "reduce", split_.threads());
    shader.line("let part_lane = lane / {}u;", split_.kept_lanes);
    shader.line("let chunk = group % {}u;", split_.chunks);
    write_element(shader, fmt::format("(group / {}u)", split_.chunks), split_.kept_lanes);
    std::vector<std::string> kept_indices = shader.split_index("element", kept_);
    RowReduction total(shader, op_, dtype_, split_.width);
    const Dim count = element_count(reduced_);
    const std::string chunk_size = shader.size(split_.chunks == 1 ? count : groups_of(count, split_.chunks));
    shader.line("let first = chunk * {};", chunk_size);
    shader.line("let end = min(first + {}, {});", chunk_size, shader.size(count));
    shader.open("for (var place = first + part_lane; place < end; place += {}u) {{", split_.reduced_lanes);
    std::vector<std::string> indices = kept_indices;
    for (const std::string& index : shader.split_index("place", reduced_)) indices.push_back(index);
    if (split_.width == 4)
      total.add(fmt::format("vec4f({})",
                            fmt::join(FourWriter(shader, kernel_, kept_.size() - 1, indices).values(operand_), ", ")),
                "place");
    else
      total.add(BodyWriter(shader, kernel_, indices).value(operand_), "place");
    shader.close();
    const std::string result = total.finish(split_.reduced_lanes, "part_lane", split_.threads(), split_.kept_lanes);
    shader.open("if (in_range && part_lane == 0u) {{");
    if (partials_ < 0)
      finish(shader, result, kept_indices);
    else if (split_.width == 4)
      shader.store_four(partials_, place_of_partial(shader), result);
    else
      shader.store(partials_, place_of_partial(shader), result);
    shader.close();
    writer_.add(shader,
                groups_of(element_count(kept_), std::int64_t{split_.kept_lanes} * split_.width) * Dim(split_.chunks));
  }

  std::string place_of_partial(Shader& shader) const {
    return fmt::format("chunk * {} + element", shader.size(element_count(kept_)));
  }

  // Writes the body's computation on a result, and its stores.
  void finish(Shader& shader, const std::string& result, std::vector<std::string> indices) {
    indices.resize(kernel_.domain.size(), "0u");
    if (split_.width == 4) {
      FourWriter four(shader, kernel_, kept_.size() - 1, std::move(indices));
      four.set(number_, result);
      return four.store(kernel_.stores);
    }
    BodyWriter body(shader, kernel_, std::move(indices));
    body.set(number_, result);
    for (const Store& store : kernel_.stores) body.value(store.value);
    for (const Store& store : kernel_.stores) body.store(store);
  }

  // Combines the chunks' results, those of bools like any others.
  void write_last() {
    const int kept_lanes = split_.width == 4 ? 8 : 32;
    int chunk_lanes = 1;
    while (!writer_.target().software && chunk_lanes * 4 < split_.chunks && chunk_lanes < 8) chunk_lanes *= 2;
    const bool boolean = op_ == Op::all_finite;
    const int threads = kept_lanes * chunk_lanes;
    Shader shader = writer_.shader("reduce_parts", threads);
    shader.line("let part_lane = lane / {}u;", kept_lanes);
    write_element(shader, "group", kept_lanes);
    RowReduction total(shader, op_, dtype_, split_.width);
    shader.open("for (var chunk = part_lane; chunk < {}u; chunk += {}u) {{", split_.chunks, chunk_lanes);
    const std::string place = place_of_partial(shader);
    const std::string part = split_.width == 4 ? shader.load_four(partials_, place) : shader.load(partials_, place);
    if (boolean)
      total.combine_with(part);
    else
      total.add(part, "chunk");
    shader.close();
    const std::string result = total.finish(chunk_lanes, "part_lane", threads, kept_lanes);
    shader.open("if (in_range && part_lane == 0u) {{");
    finish(shader, result, shader.split_index("element", kept_));
    shader.close();
    writer_.add(shader, groups_of(element_count(kept_), std::int64_t{kept_lanes} * split_.width));
  }

  KernelWriter& writer_;
  KernelSpec kernel_;
  std::vector<Dim> kept_, reduced_;
  int number_;  // of the reduction in the body
  Op op_;
  int operand_;  // the reduced value
  DType dtype_;
  KernelSpec elements_;  // the computation of each element before it is reduced
  Split split_;
  int partials_ = -1;
};

}  // namespace

void write_reduce(KernelWriter& writer) { ReduceWriter(writer).write(); }

std::string ColumnShape::str() const {
  return fmt::format("{} columns of {}{}", columns, rows, width > 1 ? fmt::format(", {} at once", width) : "");
}

std::optional<ColumnShape> column_shape_of(KernelWriter& writer) { return ReduceWriter(writer).shape(); }

std::vector<ColumnForm> column_candidates(const Target& target, const ColumnShape& shape) {
  if (target.software || shape.columns <= 0 || shape.rows <= 0 || (shape.width != 1 && shape.width != 4)) return {};
  const int threads = std::min(256, target.max_invocations);
  constexpr std::int64_t least_rows = 2;  // per thread
  const std::int64_t groups = detail::divide_up(shape.columns, shape.width);
  std::vector<ColumnForm> forms;
  for (int kept = 1; kept <= 32 && kept < 2 * groups && kept <= threads; kept *= 2)
    for (std::int64_t chunks = 1; chunks <= 64; chunks *= 2)
      if (threads / kept * chunks * least_rows <= shape.rows) forms.push_back({kept, chunks});
  return forms;
}

}  // namespace jerboa::wgsl
