#include "wgsl/matmul.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <optional>

#include "wgsl/body.h"
#include "wgsl/kernel_writer.h"
#include "wgsl/row_reduction.h"

// Matrix products. The form is a function of target and sizes alone:
// - few rows: each result by itself, its inner elements shared by some threads;
// - a driver on the CPU: each thread a block of results, straight from memory;
// - else: each workgroup a tile of results, from tiles of the operands in workgroup memory. Where that gives too few
//   workgroups, the inner dimension is cut and a second shader adds the parts up.
// Two operands of f16 are f16 in workgroup memory too, where the target has f16. They are multiplied in it where they
// come in fours and the result is f16 as well; what a few such products give is added up in f32.
namespace jerboa::wgsl {
namespace {

// The product as rows × inner times inner × columns, batch by batch.
struct Problem {
  std::vector<Dim> batch;
  Dim rows, columns, inner;
  const TensorAccess* a = nullptr;
  const TensorAccess* b = nullptr;
  std::vector<Dim> a_batch, b_batch;  // strides
  Dim a_row, a_inner, b_inner, b_column;
  const TensorAccess* scales = nullptr;  // of b, one for each 32 elements as they stand
  bool merged = false;                   // the batch is part of the rows
};

Problem problem_of(const KernelSpec& kernel) {
  Problem problem;
  const std::size_t batch = kernel.domain.size() - 2;
  problem.a = kernel.operands.data();
  problem.b = &kernel.operands[1];
  if (kernel.operands.size() > 2) problem.scales = &kernel.operands[2];
  const auto &a = problem.a->strides, &b = problem.b->strides;
  problem.batch.assign(kernel.domain.begin(), kernel.domain.end() - 2);
  problem.rows = kernel.domain[batch];
  problem.columns = kernel.domain[batch + 1];
  problem.inner = problem.a->shape.back();
  problem.a_batch.assign(a.begin(), a.end() - 2);
  problem.b_batch.assign(b.begin(), b.end() - 2);
  problem.a_row = a[batch];
  problem.a_inner = a[batch + 1];
  problem.b_inner = b[batch];
  problem.b_column = b[batch + 1];
  // A batch of products with one right-hand side is one product of more rows.
  Dim expected = problem.a_row * problem.rows;
  bool merges = batch > 0;
  for (std::size_t axis = batch; axis-- > 0;) {
    if (kernel.domain[axis] == Dim(1)) continue;
    merges = merges && b[axis] == Dim(0) && a[axis] == expected;
    expected = expected * kernel.domain[axis];
  }
  if (merges) {
    problem.merged = true;
    problem.rows = problem.rows * element_count(problem.batch);
    problem.batch.clear();
    problem.a_batch.clear();
    problem.b_batch.clear();
  }
  return problem;
}

bool is_multiple(const Dim& size, std::int64_t of) { return size.is_constant() && size.value() % of == 0; }

// How many products of f16 are added up in f16: with each the sum is less exact, and sooner past 65504.
constexpr int products_in_f16 = 8;

bool are_halves(const KernelWriter& writer, const Problem& problem) {
  const auto is_half = [](const TensorAccess& operand) {
    return operand.dtype == DType::f16 && operand.prologue.empty();
  };
  return writer.target().f16 && is_half(*problem.a) && is_half(*problem.b);
}

bool multiplies_in_f16(const KernelWriter& writer, const Problem& problem) {
  const auto& stores = writer.kernel().stores;
  return are_halves(writer, problem) && writer.target().f16_arithmetic &&
         std::all_of(stores.begin(), stores.end(), [](const Store& store) { return store.dtype == DType::f16; });
}

// Whether an operand's matrices begin where four elements can be read at once.
bool begins_in_fours(const Shader& shader, const TensorAccess& tensor, const std::vector<Dim>& batch) {
  return shader.can_be_wide(tensor.binding) && is_multiple(tensor.offset, 4) &&
         std::all_of(batch.begin(), batch.end(), [](const Dim& stride) { return is_multiple(stride, 4); });
}

// Writes the kernel's body as a function that takes a result's place and the product.
class Epilogue {
 public:
  Epilogue(Shader& shader, const KernelSpec& kernel, const Problem& problem)
      : shader_(shader), kernel_(kernel), problem_(problem) {}

  void write() {
    shader_.begin_function("fn finish(batch: u32, row: u32, column: u32, product: f32)");
    std::vector<std::string> indices;
    const std::vector<Dim> batch(kernel_.domain.begin(), kernel_.domain.end() - 2);
    if (problem_.merged) {
      std::vector<Dim> rows = batch;
      rows.push_back(kernel_.domain[batch.size()]);
      indices = shader_.split_index("row", rows);
    } else {
      indices = shader_.split_index("batch", batch);
      indices.emplace_back("row");
    }
    indices.emplace_back("column");
    BodyWriter body(shader_, kernel_, std::move(indices));
    for (std::size_t i = 0; i < kernel_.body.size(); ++i)
      if (kernel_.body[i].kind == Instruction::Kind::product) body.set(static_cast<int>(i), "product");
    for (const Store& store : kernel_.stores) body.value(store.value);
    for (const Store& store : kernel_.stores) body.store(store);
    shader_.end_function();
  }

 private:
  Shader& shader_;
  const KernelSpec& kernel_;
  const Problem& problem_;
};

// What is made of an operand's elements as they are read, as functions of one and of four.
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

void write_prologues(Shader& shader, const Problem& problem) {
  write_prologue(shader, *problem.a, "a");
  write_prologue(shader, *problem.b, "b");
}

std::string read(Shader& shader, const Problem& problem, const TensorAccess& operand, const char* name,
                 const std::string& place) {
  const std::string element = shader.load(operand.binding, place);
  if (&operand == problem.b && problem.scales != nullptr)
    return fmt::format("{} * {}", element, shader.load(problem.scales->binding, fmt::format("({}) >> 5u", place)));
  return operand.prologue.empty() ? element : fmt::format("prepare_{}({})", name, element);
}

std::string read_four(Shader& shader, const TensorAccess& operand, const char* name, const std::string& place) {
  const std::string elements = shader.load_four(operand.binding, place);
  return operand.prologue.empty() ? elements : fmt::format("prepare_four_{}({})", name, elements);
}

// Offsets of a batch's operands.
void write_batch_offsets(Shader& shader, const Problem& problem) {
  const auto indices = shader.split_index("batch", problem.batch);
  shader.line("let a_start = {};", shader.place(problem.a->offset, problem.a_batch, indices));
  shader.line("let b_start = {};", shader.place(problem.b->offset, problem.b_batch, indices));
}

std::string place(Shader& shader, const char* start, const std::string& first, const Dim& first_stride,
                  const std::string& second, const Dim& second_stride) {
  return fmt::format("{} + {}", start, shader.place(Dim(0), {first_stride, second_stride}, {first, second}));
}

// One result for some threads.
void write_dots(KernelWriter& writer, const Problem& problem) {
  const Target& target = writer.target();
  // Threads stand along what memory runs along: the inner elements of a row of weights, or the columns.
  const bool along_inner = problem.b_inner == Dim(1);
  const int threads = target.software ? 32 : 128;
  int lanes = 1;
  while (lanes < (along_inner ? std::min(threads, 32) : std::min(threads, 8)) &&
         std::int64_t{lanes} * 4 < problem.inner.upper_bound())
    lanes *= 2;
  const int results = threads / lanes;
  Shader shader = writer.shader("matrix_vector", threads);
  write_prologues(shader, problem);
  Epilogue(shader, writer.kernel(), problem).write();
  // Threads that share a result stand next to each other, or in rows across the columns.
  shader.line("let part = {};", along_inner ? fmt::format("lane % {}u", lanes) : fmt::format("lane / {}u", results));
  const std::string number = along_inner ? fmt::format("lane / {}u", lanes) : fmt::format("lane % {}u", results);
  shader.line("let wanted = group * {}u + {};", results, number);
  const Dim count = element_count(problem.batch) * problem.rows * problem.columns;
  shader.line("let in_range = wanted < {};", shader.size(count));
  shader.line("let result = min(wanted, {} - 1u);", shader.size(count));
  shader.line("let column = result % {}; let row_of_all = result / {};", shader.size(problem.columns),
              shader.size(problem.columns));
  shader.line("let row = row_of_all % {}; let batch = row_of_all / {};", shader.size(problem.rows),
              shader.size(problem.rows));
  write_batch_offsets(shader, problem);
  shader.line("var sum = 0.0;");
  const bool fours = are_halves(writer, problem) && along_inner && problem.a_inner == Dim(1) &&
                     is_multiple(problem.inner, 4) && is_multiple(problem.a_row, 4) &&
                     is_multiple(problem.b_column, 4) && begins_in_fours(shader, *problem.a, problem.a_batch) &&
                     begins_in_fours(shader, *problem.b, problem.b_batch);
  const int step_inner = fours ? 4 : 1;
  shader.open("for (var k = part * {0}u; k < {1}; k += {2}u) {{", step_inner, shader.size(problem.inner),
              lanes * step_inner);
  const std::string a = place(shader, "a_start", "row", problem.a_row, "k", problem.a_inner),
                    b = place(shader, "b_start", "k", problem.b_inner, "column", problem.b_column);
  if (!fours)
    shader.line("sum += {} * {};", read(shader, problem, *problem.a, "a", a),
                read(shader, problem, *problem.b, "b", b));
  else if (multiplies_in_f16(writer, problem))
    shader.line("sum += f32(dot({}, {}));", shader.load_four_halves(problem.a->binding, a),
                shader.load_four_halves(problem.b->binding, b));
  else
    shader.line("sum += dot({}, {});", shader.load_four(problem.a->binding, a),
                shader.load_four(problem.b->binding, b));
  shader.close();
  if (lanes > 1) {
    shader.shared_array("parts", "f32", threads);
    shader.line("parts[lane] = sum;");
    const int step_size = along_inner ? 1 : results;
    for (int step = lanes / 2; step > 0; step /= 2) {
      shader.barrier();
      shader.line("if (part < {}u) {{ sum += parts[lane + {}u]; parts[lane] = sum; }}", step, step * step_size);
    }
  }
  shader.line("if (in_range && part == 0u) {{ finish(batch, row, column, sum); }}");
  writer.add(shader, groups_of(count, results));
}

// Each thread a block of 4 × 4 results, straight from memory.
void write_blocks(KernelWriter& writer, const Problem& problem) {
  constexpr int block = 4, threads = 64;
  Shader shader = writer.shader("matmul_blocks", threads);
  write_prologues(shader, problem);
  Epilogue(shader, writer.kernel(), problem).write();
  const Dim down = groups_of(problem.rows, block), across = groups_of(problem.columns, block);
  const Dim count = element_count(problem.batch) * down * across;
  shader.line("let number = group * {}u + lane;", threads);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  shader.line("let column = (number % {0}) * {1}u; let rest = number / {0};", shader.size(across), block);
  shader.line("let row = (rest % {0}) * {1}u; let batch = rest / {0};", shader.size(down), block);
  write_batch_offsets(shader, problem);
  // Rows and columns past the end are those of the last, and are not stored.
  for (int i = 0; i < block; ++i) {
    shader.line("let row_{0} = min(row + {0}u, {1} - 1u);", i, shader.size(problem.rows));
    shader.line("let column_{0} = min(column + {0}u, {1} - 1u);", i, shader.size(problem.columns));
    shader.line("var sum_{} = vec4f();", i);
  }
  shader.open("for (var k = 0u; k < {}; k++) {{", shader.size(problem.inner));
  const auto b = [&](int i) {
    return read(shader, problem, *problem.b, "b",
                place(shader, "b_start", "k", problem.b_inner, fmt::format("column_{}", i), problem.b_column));
  };
  const std::string first = b(0), second = b(1), third = b(2), fourth = b(3);
  shader.line("let b = vec4f({}, {}, {}, {});", first, second, third, fourth);
  for (int i = 0; i < block; ++i)
    shader.line("sum_{0} += {1} * b;", i,
                read(shader, problem, *problem.a, "a",
                     place(shader, "a_start", fmt::format("row_{}", i), problem.a_row, "k", problem.a_inner)));
  shader.close();
  for (int i = 0; i < block; ++i)
    for (int j = 0; j < block; ++j)
      shader.line(
          "if (row + {0}u < {2} && column + {1}u < {3}) {{ finish(batch, row + {0}u, column + {1}u, sum_{0}.{4}); }}",
          i, j, shader.size(problem.rows), shader.size(problem.columns), "xyzw"[j]);
  writer.add(shader, groups_of(count, threads));
}

// Tiles in workgroup memory.
class TiledMatmul {
 public:
  TiledMatmul(KernelWriter& writer, const Problem& problem, const MatmulTile& tile, std::int64_t chunks)
      : writer_(writer),
        problem_(problem),
        tile_(tile),
        chunks_(chunks),
        shader_(writer.shader("matmul", tile.threads())),
        halves_(are_halves(writer, problem)),
        half_products_(multiplies_in_f16(writer, problem)) {}

  void write() {
    const KernelSpec& kernel = writer_.kernel();
    const Dim results = element_count(problem_.batch) * problem_.rows * problem_.columns;
    const int partials = chunks_ > 1 ? writer_.workspace(DType::f32, results * Dim(chunks_)) : -1;
    if (chunks_ > 1) shader_ = writer_.shader("matmul", tile_.threads());
    plain_ = partials < 0 && is_plain_store(kernel);
    write_prologues(shader_, problem_);
    if (partials < 0 && !plain_) Epilogue(shader_, kernel, problem_).write();
    const Dim down = groups_of(problem_.rows, tile_.rows), across = groups_of(problem_.columns, tile_.columns);
    write_tile_place(down, across);
    shader_.line("let chunk = group_rest_2 % {0}u; let batch = group_rest_2 / {0}u;", chunks_);
    write_batch_offsets(shader_, problem_);
    shader_.line("let thread_column = lane % {0}u; let thread_row = lane / {0}u;", tile_.across());
    write_product();
    if (partials >= 0)
      write_partials(partials);
    else
      write_results();
    writer_.add(shader_, element_count(problem_.batch) * Dim(chunks_) * down * across);
    if (partials >= 0) write_sum_of_partials(partials);
  }

 private:
  // The product alone, row by row.
  bool is_plain_store(const KernelSpec& kernel) const {
    if (kernel.stores.size() != 1 || kernel.body.size() != 1) return false;
    const Store& store = kernel.stores[0];
    return is_multiple(problem_.columns, 4) && is_multiple(store.map.offset, 4) && shader_.can_be_wide(store.binding);
  }

  // Workgroups next to each other in time share rows and columns, which then come from the cache: bands of some rows of
  // tiles, down each column of a band first.
  void write_tile_place(const Dim& down, const Dim& across) {
    const std::string all = shader_.size(down * across);
    shader_.line("let tile_number = group % {0}; let group_rest_2 = group / {0};", all);
    shader_.line("let band = tile_number / ({} * {}u) * {}u;", shader_.size(across), band_rows, band_rows);
    shader_.line("let band_size = min({} - band, {}u);", shader_.size(down), band_rows);
    shader_.line("let in_band = tile_number - band * {};", shader_.size(across));
    shader_.line("let tile_row = (band + in_band % band_size) * {}u; let tile_column = (in_band / band_size) * {}u;",
                 tile_.rows, tile_.columns);
  }

  void write_product() {
    const int a_pitch = tile_.pitch();
    const char* vector = halves_ ? "vec4<f16>" : "vec4f";
    shader_.shared_array("tile_a", vector, tile_.inner * a_pitch / 4);
    shader_.shared_array("tile_b", vector, tile_.inner * tile_.columns / 4);
    for (int i = 0; i < tile_.thread_rows; ++i)
      for (int j = 0; j < tile_.thread_columns / 4; ++j) shader_.line("var sum_{}_{} = vec4f();", i, j);
    if (chunks_ == 1) {
      shader_.line("let inner_start = 0u; let inner_end = {};", shader_.size(problem_.inner));
    } else {
      const Dim per_chunk = groups_of(groups_of(problem_.inner, chunks_), tile_.inner) * Dim(tile_.inner);
      shader_.line("let inner_start = chunk * {0}; let inner_end = min(inner_start + {0}, {1});",
                   shader_.size(per_chunk), shader_.size(problem_.inner));
    }
    const Operand a{"a",        "a_start",     problem_.a,     tile_.rows,      a_pitch,
                    "tile_row", problem_.rows, problem_.a_row, problem_.a_inner};
    const Operand b{"b",           "b_start",        problem_.b,        tile_.columns,   tile_.columns,
                    "tile_column", problem_.columns, problem_.b_column, problem_.b_inner};
    for (const Operand* operand : {&a, &b}) declare_fetched(*operand);
    // The next tiles are on their way while these are multiplied.
    for (const Operand* operand : {&a, &b}) fetch(*operand, "inner_start");
    shader_.open("for (var inner = inner_start; inner < inner_end; inner += {}u) {{", tile_.inner);
    for (const Operand* operand : {&a, &b}) put_into_tile(*operand);
    shader_.barrier();
    shader_.open("if (inner + {}u < inner_end) {{", tile_.inner);
    for (const Operand* operand : {&a, &b}) fetch(*operand, fmt::format("inner + {}u", tile_.inner));
    shader_.close();
    multiply_tiles(a_pitch);
    shader_.barrier();
    shader_.close();
  }

  void multiply_tiles(int a_pitch) {
    const int depth = half_products_ ? products_in_f16 : 1;
    const char* as_vector = halves_ && !half_products_ ? "vec4f" : "";
    shader_.open("for (var k = 0u; k < {}u; k += {}u) {{", tile_.inner, depth);
    for (int i = 0; i < tile_.thread_rows / 4; ++i)
      for (int d = 0; d < depth; ++d)
        shader_.line("let a_{0}_{1} = {2}(tile_a[(k + {1}u) * {3}u + thread_row * {4}u + {0}u]);", i, d, as_vector,
                     a_pitch / 4, tile_.thread_rows / 4);
    for (int j = 0; j < tile_.thread_columns / 4; ++j) {
      for (int d = 0; d < depth; ++d)
        shader_.line("let b_{0}_{1} = {2}(tile_b[(k + {1}u) * {3}u + thread_column + {4}u]);", j, d, as_vector,
                     tile_.columns / 4, j * tile_.across());
      for (int i = 0; i < tile_.thread_rows; ++i) {
        const auto factors = [&](int d) {
          return fmt::format("{}(a_{}_{}.{}), b_{}_{}", half_products_ ? "vec4<f16>" : "vec4f", i / 4, d, "xyzw"[i % 4],
                             j, d);
        };
        std::string sum = half_products_ ? "vec4<f16>()" : fmt::format("sum_{}_{}", i, j);
        for (int d = 0; d < depth; ++d) sum = fmt::format("fma({}, {})", factors(d), sum);
        shader_.line("sum_{}_{} {} {};", i, j, half_products_ ? "+=" : "=",
                     half_products_ ? fmt::format("vec4f({})", sum) : sum);
      }
    }
    shader_.close();
  }

  // One operand: `width` of its rows (of the second: columns) are taken, tile_.inner deep. In workgroup memory the
  // inner elements are rows of `pitch`.
  struct Operand {
    const char* name;
    const char* start;
    const TensorAccess* tensor;
    int width, pitch;
    const char* tile_start;
    Dim count, stride, inner_stride;

    bool along_inner() const { return inner_stride == Dim(1); }
  };

  // Whether four elements can be read at once.
  bool is_wide(const Operand& own) const {
    const TensorAccess& tensor = *own.tensor;
    return begins_in_fours(shader_, tensor, own.tensor == problem_.a ? problem_.a_batch : problem_.b_batch) &&
           !is_written(tensor.binding) &&
           (own.along_inner() ? is_multiple(own.stride, 4) && is_multiple(problem_.inner, 4)
                              : own.stride == Dim(1) && is_multiple(own.inner_stride, 4) && is_multiple(own.count, 4));
  }

  // The type that an operand's elements are fetched in.
  const char* fetched_type(const Operand& own) const { return !is_wide(own) ? "f32" : halves_ ? "vec4<f16>" : "vec4f"; }

  int fetches(const Operand& own) const {
    const int total = own.width * tile_.inner / (is_wide(own) ? 4 : 1);
    return (total + tile_.threads() - 1) / tile_.threads();
  }

  void declare_fetched(const Operand& own) {
    const int step = is_wide(own) ? 4 : 1, per_row = own.along_inner() ? tile_.inner / step : own.width / step;
    for (int i = 0; i < fetches(own); ++i) {
      shader_.line("var {}_{} = {}();", own.name, i, fetched_type(own));
      // Neighbouring threads read neighbouring elements.
      const char* first = own.along_inner() ? "inside" : "across";
      const char* second = own.along_inner() ? "across" : "inside";
      shader_.line("let {0}_{1}_{2} = (lane + {3}u) % {4}u * {5}u; let {0}_{6}_{2} = (lane + {3}u) / {4}u;", own.name,
                   first, i, i * tile_.threads(), per_row, step, second);
    }
  }

  void fetch(const Operand& own, const std::string& inner) {
    const bool checks_count = !is_multiple(own.count, own.width);
    const bool checks_inner = !is_multiple(problem_.inner, tile_.inner) || chunks_ > 1;
    const int total = own.width * tile_.inner / (is_wide(own) ? 4 : 1);
    for (int i = 0; i < fetches(own); ++i) {
      shader_.open("{{");
      shader_.line("let at = {} + {}_across_{}; let k = {} + {}_inside_{};", own.tile_start, own.name, i, inner,
                   own.name, i);
      const std::string from = place(shader_, own.start, "at", own.stride, "k", own.inner_stride);
      std::vector<std::string> conditions;
      if (checks_count) conditions.push_back(fmt::format("at < {}", shader_.size(own.count)));
      if (checks_inner) conditions.emplace_back("k < inner_end");
      if ((i + 1) * tile_.threads() > total)
        conditions.push_back(fmt::format("lane + {}u < {}u", i * tile_.threads(), total));
      const std::string fetched = !is_wide(own) ? read(shader_, problem_, *own.tensor, own.name, from)
                                  : halves_     ? shader_.load_four_halves(own.tensor->binding, from)
                                                : read_four(shader_, *own.tensor, own.name, from);
      if (conditions.empty()) {
        shader_.line("{}_{} = {};", own.name, i, fetched);
      } else {
        shader_.line("{}_{} = {}();", own.name, i, fetched_type(own));
        shader_.line("if ({}) {{ {}_{} = {}; }}", fmt::join(conditions, " && "), own.name, i, fetched);
      }
      shader_.close();
    }
  }

  void put_into_tile(const Operand& own) {
    const int total = own.width * tile_.inner / (is_wide(own) ? 4 : 1);
    for (int i = 0; i < fetches(own); ++i) {
      const bool partial = (i + 1) * tile_.threads() > total;
      if (partial) shader_.open("if (lane + {}u < {}u) {{", i * tile_.threads(), total);
      const std::string inside = fmt::format("{}_inside_{}", own.name, i),
                        across = fmt::format("{}_across_{}", own.name, i);
      if (!is_wide(own)) {
        shader_.line("tile_{0}[({1} * {3}u + {2}) / 4u][{2} % 4u] = {5}({0}_{4});", own.name, inside, across, own.pitch,
                     i, halves_ ? "f16" : "");
      } else if (own.along_inner()) {
        for (int j = 0; j < 4; ++j)
          shader_.line("tile_{0}[(({1} + {5}u) * {3}u + {2}) / 4u][{2} % 4u] = {0}_{4}.{6};", own.name, inside, across,
                       own.pitch, i, j, "xyzw"[j]);
      } else {
        shader_.line("tile_{0}[({1} * {3}u + {2}) / 4u] = {0}_{4};", own.name, inside, across, own.pitch, i);
      }
      if (partial) shader_.close();
    }
  }

  bool is_written(int binding) const {
    const auto& stores = writer_.kernel().stores;
    return std::any_of(stores.begin(), stores.end(), [&](const Store& store) { return store.binding == binding; });
  }

  // Calls `f` for each vector of results that the thread holds, with the text of its row and first column.
  template <class F>
  void for_each_vector(F f) {
    for (int i = 0; i < tile_.thread_rows; ++i) {
      shader_.line("let row_{0} = tile_row + thread_row * {1}u + {0}u;", i, tile_.thread_rows);
      for (int j = 0; j < tile_.thread_columns / 4; ++j) {
        if (i == 0) shader_.line("let column_{0} = tile_column + (thread_column + {1}u) * 4u;", j, j * tile_.across());
        f(fmt::format("row_{}", i), fmt::format("column_{}", j), fmt::format("sum_{}_{}", i, j));
      }
    }
  }

  std::string inside(const std::string& row, const std::string& column, int by = 0) {
    std::string text;
    if (!is_multiple(problem_.rows, tile_.rows)) text = fmt::format("{} < {}", row, shader_.size(problem_.rows));
    if (!is_multiple(problem_.columns, tile_.columns)) {
      if (!text.empty()) text += " && ";
      text += by == 0 ? fmt::format("{} < {}", column, shader_.size(problem_.columns))
                      : fmt::format("{} + {}u < {}", column, by, shader_.size(problem_.columns));
    }
    return text.empty() ? "true" : text;
  }

  void write_results() {
    const KernelSpec& kernel = writer_.kernel();
    for_each_vector([&](const std::string& row, const std::string& column, const std::string& sum) {
      if (plain_) {
        shader_.open("if ({}) {{", inside(row, column));
        shader_.store_four(kernel.stores[0].binding,
                           fmt::format("{} + (batch * {} + {}) * {} + {}", shader_.size(kernel.stores[0].map.offset),
                                       shader_.size(problem_.rows), row, shader_.size(problem_.columns), column),
                           sum);
        shader_.close();
        return;
      }
      for (int k = 0; k < 4; ++k)
        shader_.line("if ({}) {{ finish(batch, {}, {} + {}u, {}.{}); }}", inside(row, column, k), row, column, k, sum,
                     "xyzw"[k]);
    });
  }

  void write_partials(int partials) {
    const std::string start = fmt::format("(batch * {}u + chunk) * {}", chunks_, shader_.size(problem_.rows));
    for_each_vector([&](const std::string& row, const std::string& column, const std::string& sum) {
      for (int k = 0; k < 4; ++k) {
        shader_.open("if ({}) {{", inside(row, column, k));
        shader_.store(partials,
                      fmt::format("({} + {}) * {} + {} + {}u", start, row, shader_.size(problem_.columns), column, k),
                      fmt::format("{}.{}", sum, "xyzw"[k]));
        shader_.close();
      }
    });
  }

  void write_sum_of_partials(int partials) {
    constexpr int threads = 128;
    Shader last = writer_.shader("matmul_parts", threads);
    Epilogue(last, writer_.kernel(), problem_).write();
    const Dim plane = problem_.rows * problem_.columns, count = element_count(problem_.batch) * plane;
    last.line("let number = group * {}u + lane;", threads);
    last.line("if (number >= {}) {{ return; }}", last.size(count));
    last.line("let batch = number / {0}; let element = number % {0};", last.size(plane));
    last.line("let row = element / {0}; let column = element % {0};", last.size(problem_.columns));
    last.line("var sum = 0.0;");
    last.open("for (var chunk = 0u; chunk < {}u; chunk++) {{", chunks_);
    last.line("sum += {};",
              last.load(partials, fmt::format("(batch * {}u + chunk) * {} + element", chunks_, last.size(plane))));
    last.close();
    last.line("finish(batch, row, column, sum);");
    writer_.add(last, groups_of(count, threads));
  }

  static constexpr int band_rows = 8;
  KernelWriter& writer_;
  const Problem& problem_;
  MatmulTile tile_;
  std::int64_t chunks_;
  Shader shader_;
  bool halves_, half_products_;  // tiles of f16, and products in f16
  bool plain_ = false;
};

std::int64_t pieces(std::int64_t total, std::int64_t size) { return (total + size - 1) / size; }

}  // namespace

void write_tiled_matmul(KernelWriter& writer, const MatmulTile& tile, std::int64_t chunks) {
  const Problem problem = problem_of(writer.kernel());
  TiledMatmul(writer, problem, tile, chunks).write();
}

void write_matmul(KernelWriter& writer) {
  const Problem problem = problem_of(writer.kernel());
  const std::int64_t rows = problem.rows.upper_bound(), columns = problem.columns.upper_bound(),
                     inner = problem.inner.upper_bound(), batch = element_count(problem.batch).upper_bound();
  if (rows <= 4 || columns <= 4) return write_dots(writer, problem);
  if (writer.target().software) return write_blocks(writer, problem);
  // Large tiles reuse more; small ones keep a device busy.
  constexpr std::int64_t enough_groups = 128, enough_groups_in_chunks = 256;
  const auto groups = [&](const MatmulTile& tile) {
    return batch * pieces(rows, tile.rows) * pieces(columns, tile.columns);
  };
  MatmulTile tile{128, 128, 16, 8, 8};
  if (groups(tile) < enough_groups) tile = {128, 64, 16, 8, 4};
  if (groups(tile) < enough_groups) tile = {64, 64, 16, 8, 4};
  // A short product is better cut into smaller tiles than into chunks, which need a second shader.
  constexpr std::int64_t short_inner = 512;
  if (groups(tile) < enough_groups && inner <= short_inner) tile = {32, 64, 16, 4, 4};
  // Where nothing else keeps the device busy, each step into the depth is waited for: deeper tiles take fewer.
  if (groups(tile) < enough_groups && inner <= short_inner) tile = {32, 32, 32, 4, 4};
  if (rows <= 32 || columns <= 32) tile = {32, 32, 16, 4, 4};
  if (tile.workgroup_bytes(are_halves(writer, problem) ? 2 : 4) > writer.target().workgroup_bytes) tile.inner /= 2;
  std::int64_t chunks = 1;
  if (groups(tile) < enough_groups && inner > short_inner)
    while (groups(tile) * chunks < enough_groups_in_chunks && inner / (chunks * 2) >= 128 && chunks < 64) chunks *= 2;
  TiledMatmul(writer, problem, tile, chunks).write();
}

}  // namespace jerboa::wgsl
