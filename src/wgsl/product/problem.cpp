#include "wgsl/product/problem.h"

#include <algorithm>

#include "lower/axes.h"
#include "wgsl/body.h"

namespace jerboa::wgsl {
namespace {

bool is_stored(const KernelSpec& kernel, const TensorAccess& operand) {
  return std::any_of(kernel.stores.begin(), kernel.stores.end(),
                     [&](const Store& store) { return store.binding == operand.binding; });
}

bool gives_halves(const TensorAccess& operand) {
  return (operand.prologue.empty() ? operand.dtype : operand.prologue.back().dtype) == DType::f16;
}

// Whether four consecutive values of an operand, along the inner dimension or across it, can always be read at once.
bool lies_in_fours(const Shader& shader, const TensorAccess& operand, const std::vector<Dim>& batch, const Dim& stride,
                   const Dim& inner_stride, const Dim& inner) {
  const auto steps_in_fours = [](const Dim& dim) { return is_multiple(dim, 4) && dim.value() > 0; };
  const bool along_inner = inner_stride == Dim(1) && steps_in_fours(stride) && is_multiple(inner, 4);
  const bool across = stride == Dim(1) && steps_in_fours(inner_stride);
  return (along_inner || across) && begins_in_fours(shader, operand, batch);
}

// Whether its elements can be read one by one, by threads that are adjacent along the inner dimension or across it.
bool lies_in_lines(const KernelWriter& writer, const TensorAccess& operand, const Dim& stride,
                   const Dim& inner_stride) {
  const auto is_positive = [](const Dim& dim) { return dim.is_constant() && dim.value() > 0; };
  return is_positive(stride) && is_positive(inner_stride) && (stride == Dim(1) || inner_stride == Dim(1)) &&
         writer.memories()[static_cast<std::size_t>(operand.binding)].bytes <= writer.target().max_binding_bytes;
}

bool is_half(const TensorAccess& operand) { return operand.dtype == DType::f16 && operand.prologue.empty(); }

// Whether an operand's rows along the inner dimension can be read 16 bytes at a time.
bool lies_in_sixteens(const Shader& shader, const TensorAccess& operand, const std::vector<Dim>& batch,
                      const Dim& stride, const Dim& inner_stride) {
  const std::int64_t elements = 16 * 8 / bits(operand.dtype);
  const auto aligned = [&](const Dim& dim) { return is_multiple(dim, elements); };
  return inner_stride == Dim(1) && aligned(stride) && aligned(operand.offset) &&
         std::all_of(batch.begin(), batch.end(), aligned) && shader.can_be_read_in_sixteens(operand.binding);
}

}  // namespace

MatmulProblem MatmulProblem::of_groups(const KernelSpec& kernel) {
  MatmulProblem problem;
  problem.a = kernel.operands.data();
  problem.b = &kernel.operands[1];
  problem.scales = &kernel.operands[2];
  if (kernel.operands[3].binding >= 0) problem.mins = &kernel.operands[3];
  problem.offsets = &kernel.operands[4];
  problem.rows = problem.a->shape[0];
  problem.columns = problem.b->shape[1];
  problem.inner = problem.b->shape[2];
  problem.a_row = problem.a->strides[0];
  problem.a_inner = problem.a->strides[1];
  problem.b_column = problem.b->strides[1];
  problem.b_inner = problem.b->strides[2];
  return problem;
}

MatmulProblem::MatmulProblem(const KernelWriter& writer)
    : batch(writer.kernel().domain.begin(), writer.kernel().domain.end() - 2),
      a(writer.kernel().operands.data()),
      b(&writer.kernel().operands[1]) {
  const KernelSpec& kernel = writer.kernel();
  const Target& target = writer.target();
  const std::size_t axes = batch.size();
  if (kernel.operands.size() > 2) scales = &kernel.operands[2];
  if (kernel.operands.size() > 3) mins = &kernel.operands[3];
  rows = kernel.domain[axes];
  columns = kernel.domain[axes + 1];
  inner = a->shape.back();
  a_batch.assign(a->strides.begin(), a->strides.end() - 2);
  b_batch.assign(b->strides.begin(), b->strides.end() - 2);
  a_row = a->strides[axes];
  a_inner = a->strides[axes + 1];
  b_inner = b->strides[axes];
  b_column = b->strides[axes + 1];
  // A batch of products with a common right-hand side is one product with more rows.
  if (axes > 0 && detail::is_one_product(batch, a_batch, b_batch, a_row, rows)) {
    merged = true;
    rows = rows * element_count(batch);
    batch.clear();
    a_batch.clear();
    b_batch.clear();
  }
  halves = target.f16 && is_half(*a) && is_half(*b);
  multiplies_in_f16 = halves && target.f16_arithmetic &&
                      std::all_of(kernel.stores.begin(), kernel.stores.end(),
                                  [](const Store& store) { return store.dtype == DType::f16; });
  const Shader shader = writer.shader("matmul", 1);
  products = writer.folded().companion ? 2 : 1;
  if (writer.folded().scaled_rows)
    for (const Instruction& instruction : writer.folded().scaled_rows->body)
      row_totals += instruction.kind == Instruction::Kind::reduce ? 1 : 0;
  suits_vectors = rows.is_constant() && rows.value() <= most_vector_rows && is_multiple(inner, 8) &&
                  scales == nullptr &&
                  lies_in_sixteens(shader, *a, a_batch, rows == Dim(1) ? Dim(0) : a_row, a_inner) &&
                  lies_in_sixteens(shader, *b, b_batch, b_column, b_inner) && !is_stored(kernel, *a) &&
                  !is_stored(kernel, *b) && a->binding != b->binding;
  suits_matrices = target.f16 && target.subgroup_matrices != SubgroupMatrices::none && inner.is_constant() &&
                   inner.value() > 0 && columns.is_constant() && !is_stored(kernel, *a) && !is_stored(kernel, *b);
  if (!suits_matrices) return;
  a_in_fours = lies_in_fours(shader, *a, a_batch, a_row, a_inner, inner);
  b_in_fours = scales != nullptr || lies_in_fours(shader, *b, b_batch, b_column, b_inner, inner);
  scales_rows = scales != nullptr && !gives_halves(*a);
  if (scales == nullptr)
    suits_matrices = gives_halves(*a) && gives_halves(*b) &&
                     (a_in_fours || lies_in_lines(writer, *a, a_row, a_inner)) &&
                     (b_in_fours || lies_in_lines(writer, *b, b_column, b_inner));
  else
    suits_matrices = target.f16_arithmetic && a_in_fours && batch.empty() && shader.can_load_blocks(b->binding) &&
                     columns.value() * inner.value() >= many_weights && (!scales_rows || a_inner == Dim(1));
}

bool begins_in_fours(const Shader& shader, const TensorAccess& tensor, const std::vector<Dim>& batch) {
  return shader.can_be_wide(tensor.binding) && is_multiple(tensor.offset, 4) &&
         std::all_of(batch.begin(), batch.end(), [](const Dim& stride) { return is_multiple(stride, 4); });
}

void write_prologue(Shader& shader, const TensorAccess& operand, const char* name) {
  if (operand.prologue.empty()) return;
  KernelSpec kernel;
  kernel.body = operand.prologue;
  shader.begin_function(fmt::format("fn prepare_{}(given: f32) -> f32", name));
  BodyWriter body(shader, kernel, {});
  body.set(0, "given");
  const std::string result = body.value(static_cast<int>(kernel.body.size()) - 1);
  shader.line("return {};", result);
  shader.end_function();
  shader.begin_function(fmt::format("fn prepare_four_{}(given: vec4f) -> vec4f", name));
  shader.line("return vec4f(prepare_{0}(given.x), prepare_{0}(given.y), prepare_{0}(given.z), prepare_{0}(given.w));",
              name);
  shader.end_function();
}

void write_prologues(Shader& shader, const MatmulProblem& problem) {
  write_prologue(shader, *problem.a, "a");
  write_prologue(shader, *problem.b, "b");
}

std::string read_operand(Shader& shader, const MatmulProblem& problem, const TensorAccess& operand, const char* name,
                         const std::string& place) {
  const std::string element = shader.load(operand.binding, place);
  if (&operand == problem.b && problem.scales != nullptr) {
    const std::string group = fmt::format("({}) >> 5u", place);
    const std::string scaled = fmt::format("{} * {}", element, shader.load(problem.scales->binding, group));
    if (problem.mins == nullptr) return scaled;
    return fmt::format("({} + {})", scaled, shader.load(problem.mins->binding, group));
  }
  return operand.prologue.empty() ? element : fmt::format("prepare_{}({})", name, element);
}

std::string read_four_of_operand(Shader& shader, const TensorAccess& operand, const char* name,
                                 const std::string& place) {
  const std::string elements = shader.load_four(operand.binding, place);
  return operand.prologue.empty() ? elements : fmt::format("prepare_four_{}({})", name, elements);
}

// Workgroups that run close in time share rows and columns, which then hit the cache: bands of some rows of tiles,
// traversed column by column.
Dim write_tile_place(Shader& shader, const MatmulProblem& problem, const MatmulForm& form) {
  constexpr int band_rows = 8;
  const Dim down = groups_of(problem.rows, form.rows), across = groups_of(problem.columns, form.columns);
  shader.line("let tile_number = group % {0}; let chunk_of_all = group / {0};", shader.size(down * across));
  shader.line("let band = tile_number / ({} * {}u) * {}u;", shader.size(across), band_rows, band_rows);
  shader.line("let band_size = min({} - band, {}u);", shader.size(down), band_rows);
  shader.line("let in_band = tile_number - band * {};", shader.size(across));
  shader.line("let tile_row = (band + in_band % band_size) * {}u; let tile_column = (in_band / band_size) * {}u;",
              form.rows, form.columns);
  shader.line("let chunk = chunk_of_all % {0}u; let batch = chunk_of_all / {0}u;", form.chunks);
  return element_count(problem.batch) * Dim(form.chunks) * down * across;
}

void write_batch_offsets(Shader& shader, const MatmulProblem& problem) {
  const auto indices = shader.split_index("batch", problem.batch);
  shader.line("let a_start = {};", shader.place(problem.a->offset, problem.a_batch, indices));
  shader.line("let b_start = {};", shader.place(problem.b->offset, problem.b_batch, indices));
}

std::string place_in_matrix(Shader& shader, const char* start, const std::string& first, const Dim& first_stride,
                            const std::string& second, const Dim& second_stride) {
  return fmt::format("{} + {}", start, shader.place(Dim(0), {first_stride, second_stride}, {first, second}));
}

}  // namespace jerboa::wgsl
