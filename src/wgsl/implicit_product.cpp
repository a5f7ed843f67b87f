#include "wgsl/implicit_product.h"

#include <algorithm>

#include "base/integers.h"
#include "wgsl/lines.h"

namespace jerboa::wgsl {
namespace {

constexpr int tile_inner = 16, block = 4;  // a thread computes block × block results

class ProductWriter {
 public:
  ProductWriter(KernelWriter& writer, const ImplicitProduct& product)
      : writer_(writer),
        product_(product),
        batch_(product.batch.upper_bound()),
        rows_(product.rows.upper_bound()),
        columns_(product.columns.upper_bound()),
        inner_(product.inner.upper_bound()) {}

  void write() {
    const Target& target = writer_.target();
    constexpr std::int64_t thin = 8;
    const bool tiles = !target.software && rows_ > thin && columns_ > thin;
    if (tiles) {
      constexpr std::int64_t enough_groups = 128;
      tile_ = target.max_invocations >= 256 &&
                      batch_ * detail::divide_up(rows_, 64) * detail::divide_up(columns_, 64) >= enough_groups
                  ? 64
                  : 32;
      choose_chunks(batch_ * detail::divide_up(rows_, tile_) * detail::divide_up(columns_, tile_), enough_groups, 128);
    } else if (!target.software) {
      choose_chunks(batch_ * rows_ * columns_, 1 << 10, 1024);
    }
    if (chunks_ > 1)
      partials_ = writer_.workspace(DType::f32, product_.batch * product_.rows * product_.columns * Dim(chunks_));
    if (tiles)
      write_tiles();
    else
      write_results();
    if (chunks_ > 1) write_sum_of_partials();
  }

 private:
  // With few results and long sums, the sums are split into chunks.
  void choose_chunks(std::int64_t units, std::int64_t enough, std::int64_t least) {
    if (product_.find) return;
    while (units * chunks_ < enough && inner_ / (chunks_ * 2) >= least && chunks_ < 64) chunks_ *= 2;
  }

  Dim rows_of_tiles(int tile_rows) const {
    return product_.find ? product_.rows_of_tiles(tile_rows) : product_.batch * groups_of(product_.rows, tile_rows);
  }

  // From `number`, a tile's index, derives the tile's columns, its rows and the inner elements of its chunk.
  ImplicitProduct::Place write_place(Shader& shader, int tile_rows, int tile_columns) {
    const Dim across = groups_of(product_.columns, tile_columns);
    shader.line("let first_column = (number % {0}) * {1}u; let rest = number / {0};", shader.size(across),
                tile_columns);
    shader.line("let chunk = rest % {0}u; let row_of_tiles = rest / {0}u;", chunks_);
    if (product_.find) return product_.find(shader, "row_of_tiles", tile_rows);
    const Dim down = groups_of(product_.rows, tile_rows);
    shader.line("let batch = row_of_tiles / {0}; let first_row = (row_of_tiles % {0}) * {1}u;", shader.size(down),
                tile_rows);
    const std::string inner = shader.size(product_.inner);
    if (chunks_ == 1) return {"first_row", shader.size(product_.rows), "0u", inner};
    const Dim step = groups_of(groups_of(product_.inner, chunks_), tile_inner) * Dim(tile_inner);
    shader.line("let inner_start = chunk * {0}; let inner_end = min(inner_start + {0}, {1});", shader.size(step),
                inner);
    return {"first_row", shader.size(product_.rows), "inner_start", "inner_end"};
  }

  void finish(Shader& shader, const std::string& row, const std::string& column, const std::string& sum) {
    if (partials_ < 0) return product_.finish(shader, "batch", row, column, sum);
    const std::string start =
        fmt::format("(chunk * {} + batch) * {}", shader.size(product_.batch), shader.size(product_.rows));
    shader.store(partials_, fmt::format("({} + {}) * {} + {}", start, row, shader.size(product_.columns), column), sum);
  }

  // The number of threads that share a result when results are few.
  int choose_lanes(std::int64_t results) const {
    constexpr std::int64_t enough_threads = 1 << 16, least = 16;
    int lanes = 1;
    if (writer_.target().software) return lanes;
    while (results * lanes < enough_threads && inner_ / lanes / 2 >= least && lanes < 32) lanes *= 2;
    return lanes;
  }

  // One result per thread, or per group of threads that share its sum.
  void write_results() {
    constexpr int threads = 128;
    const Dim count = rows_of_tiles(1) * product_.columns * Dim(chunks_);
    const int lanes = choose_lanes(count.upper_bound()), results = threads / lanes;
    Shader shader = writer_.shader(product_.name + "_direct", threads);
    // Adjacent threads follow the contiguous dimension.
    const bool along_inner = product_.b.along_inner;
    shader.line("let part = {};", along_inner ? fmt::format("lane % {}u", lanes) : fmt::format("lane / {}u", results));
    shader.line("let wanted = group * {}u + {};", results,
                along_inner ? fmt::format("lane / {}u", lanes) : fmt::format("lane % {}u", results));
    shader.line("let number = min(wanted, {} - 1u);", shader.size(count));
    const auto place = write_place(shader, 1, 1);
    shader.line("let row = {}; let column = first_column;", place.first_row);
    shader.line("let in_range = wanted < {} && row < {};", shader.size(count), place.row_end);
    shader.line("var sum = 0.0;");
    shader.open("if (in_range) {{");
    const auto a = product_.a.at(shader, "row"), b = product_.b.at(shader, "column");
    shader.open("for (var k = {} + part; k < {}; k += {}u) {{", place.inner_start, place.inner_end, lanes);
    const std::string left = a("k"), right = b("k");
    shader.line("sum += {} * {};", left, right);
    shader.close();
    shader.close();
    if (lanes > 1) {
      const int step_size = along_inner ? 1 : results;
      shader.shared_array("parts", "f32", threads);
      shader.line("parts[lane] = sum;");
      for (int step = lanes / 2; step > 0; step /= 2) {
        shader.barrier();
        shader.line("if (part < {}u) {{ sum += parts[lane + {}u]; parts[lane] = sum; }}", step, step * step_size);
      }
    }
    shader.open("if (in_range && part == 0u) {{");
    finish(shader, "row", "column", "sum");
    shader.close();
    writer_.add(std::move(shader), groups_of(count, results), all_operations);
  }

  void write_tiles() {
    const int across = tile_ / block, threads = across * across,
              pitch = tile_ + 4;  // spreads rows over the memory banks
    Shader shader = writer_.shader(product_.name, threads);
    shader.shared_array("tile_a", "vec4f", tile_inner * pitch / 4);
    shader.shared_array("tile_b", "vec4f", tile_inner * pitch / 4);
    shader.line("let number = group;");
    const auto place = write_place(shader, tile_, tile_);
    shader.line("let thread_column = lane % {0}u; let thread_row = lane / {0}u;", across);
    const auto load_a = prepare(shader, product_.a, "tile_a", place.first_row, place.row_end, place.inner_end, threads);
    const auto load_b =
        prepare(shader, product_.b, "tile_b", "first_column", shader.size(product_.columns), place.inner_end, threads);
    for (int i = 0; i < block; ++i) shader.line("var sum_{} = vec4f();", i);
    shader.open("for (var inner = {}; inner < {}; inner += {}u) {{", place.inner_start, place.inner_end, tile_inner);
    load_a();
    load_b();
    shader.barrier();
    shader.open("for (var k = 0u; k < {}; k++) {{", shader.loop_end(fmt::format("{}u", tile_inner)));
    shader.line("let a = tile_a[k * {0}u + thread_row]; let b = tile_b[k * {0}u + thread_column];", pitch / 4);
    for (int i = 0; i < block; ++i) shader.line("sum_{0} = fma(vec4f(a.{1}), b, sum_{0});", i, "xyzw"[i]);
    shader.close();
    shader.barrier();
    shader.close();
    for (int i = 0; i < block; ++i) {
      shader.open("if ({} + thread_row * {}u + {}u < {}) {{", place.first_row, block, i, place.row_end);
      const std::string row = shader.let("row", fmt::format("{} + thread_row * {}u + {}u", place.first_row, block, i));
      for (int j = 0; j < block; ++j) {
        const std::string column =
            shader.let("column", fmt::format("first_column + thread_column * {}u + {}u", block, j));
        shader.open("if ({} < {}) {{", column, shader.size(product_.columns));
        finish(shader, row, column, fmt::format("sum_{}.{}", i, "xyzw"[j]));
        shader.close();
      }
      shader.close();
    }
    writer_.add(std::move(shader), rows_of_tiles(tile_) * groups_of(product_.columns, tile_) * Dim(chunks_),
                all_operations);
  }

  // Emits what the thread's elements of a tile share over all steps; returns a function that emits the loads of one
  // step. Adjacent threads read adjacent memory.
  std::function<void()> prepare(Shader& shader, const ImplicitProduct::Operand& operand, const std::string& tile,
                                const std::string& first, const std::string& end, const std::string& inner_end,
                                int threads) {
    struct TileElement {
      std::string at, across, inside;
      ImplicitProduct::Element element;
    };
    std::vector<TileElement> elements;
    // The workgroup loads a few whole rows of the tile at a time: along the inner dimension, or across it.
    const int fastest = operand.along_inner ? tile_inner : tile_;
    const std::string fast = shader.let("fast", fmt::format("lane % {}u", fastest));
    for (int i = 0; i < tile_ * tile_inner / threads; ++i) {
      const std::string slow = shader.let("slow", fmt::format("lane / {}u + {}u", fastest, i * threads / fastest));
      if (operand.along_inner || i == 0) {
        const std::string& across = operand.along_inner ? slow : fast;
        const std::string at = shader.let("at", fmt::format("{} + {}", first, across));
        elements.push_back({at, across, operand.along_inner ? fast : slow, operand.at(shader, at)});
      } else {
        elements.push_back({elements[0].at, fast, slow, elements[0].element});
      }
    }
    return [this, &shader, elements = std::move(elements), tile, end, inner_end] {
      for (const TileElement& one : elements) {
        shader.open("{{");
        shader.line("let k = inner + {};", one.inside);
        shader.line("var taken = 0.0;");
        shader.open("if ({} < {} && k < {}) {{", one.at, end, inner_end);
        shader.line("taken = {};", one.element("k"));
        shader.close();
        shader.line("{}[({} * {}u + {}) / 4u][{} % 4u] = taken;", tile, one.inside, tile_ + 4, one.across, one.across);
        shader.close();
      }
    };
  }

  void write_sum_of_partials() {
    const Dim plane = product_.rows * product_.columns, count = product_.batch * plane;
    Shader shader = shader_of_elements(writer_, product_.name + "_parts", count);
    shader.line("let batch = element / {0}; let in_batch = element % {0};", shader.size(plane));
    shader.line("let row = in_batch / {0}; let column = in_batch % {0};", shader.size(product_.columns));
    shader.line("var sum = 0.0;");
    shader.open("for (var chunk = 0u; chunk < {}u; chunk++) {{", chunks_);
    shader.line("sum += {};", shader.load(partials_, fmt::format("chunk * {} + element", shader.size(count))));
    shader.close();
    product_.finish(shader, "batch", "row", "column", "sum");
    add_shader_of_elements(writer_, std::move(shader), count);
  }

  KernelWriter& writer_;
  const ImplicitProduct& product_;
  std::int64_t batch_, rows_, columns_, inner_;
  int tile_ = 32, partials_ = -1;
  std::int64_t chunks_ = 1;
};

}  // namespace

void write_product(KernelWriter& writer, const ImplicitProduct& product) { ProductWriter(writer, product).write(); }

}  // namespace jerboa::wgsl
