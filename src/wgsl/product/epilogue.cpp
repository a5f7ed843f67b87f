#include "wgsl/product/epilogue.h"

#include <algorithm>

namespace jerboa::wgsl {

// The index along each axis of the domain except the last.
std::vector<std::string> Epilogue::write_indices() {
  std::vector<Dim> batch(kernel_.domain.begin(), kernel_.domain.end() - 2);
  if (problem_.merged) {
    batch.push_back(kernel_.domain[batch.size()]);
    return shader_.split_index("row", batch);
  }
  std::vector<std::string> indices = shader_.split_index("batch", batch);
  indices.emplace_back("row");
  return indices;
}

// The body, with the values that are supplied from outside.
BodyWriter Epilogue::body(int companion) {
  std::vector<std::string> indices = write_indices();
  indices.emplace_back("column");
  BodyWriter body(shader_, kernel_, std::move(indices));
  for (std::size_t i = 0; i < kernel_.body.size(); ++i) {
    const Instruction& instruction = kernel_.body[i];
    if (instruction.kind == Instruction::Kind::product) body.set(static_cast<int>(i), "product");
    if (instruction.kind == Instruction::Kind::load && companion >= 0 &&
        kernel_.loads[static_cast<std::size_t>(instruction.index)].binding == companion)
      body.set(static_cast<int>(i), "other");
  }
  return body;
}

void Epilogue::write(int companion) {
  shader_.begin_function(
      fmt::format("fn finish(batch: u32, row: u32, column: u32, product: f32{})", companion < 0 ? "" : ", other: f32"));
  BodyWriter values = body(companion);
  for (const Store& store : kernel_.stores) values.value(store.value);
  for (const Store& store : kernel_.stores) values.store(store);
  shader_.end_function();
}

void Epilogue::write_value(const std::string& name) {
  shader_.begin_function(fmt::format("fn {}(batch: u32, row: u32, column: u32, product: f32) -> f32", name));
  BodyWriter values = body();
  const std::string value = values.value(kernel_.stores.front().value);
  shader_.line("return {};", value);
  shader_.end_function();
}

FourWriter Epilogue::four_writer() {
  std::vector<std::string> indices = write_indices();
  indices.emplace_back("column");
  // Each form reads the operands in its own way.
  FourWriter four(shader_, kernel_, kernel_.domain.size() - 1, std::move(indices),
                  {problem_.a->binding, problem_.b->binding});
  for (std::size_t i = 0; i < kernel_.body.size(); ++i)
    if (kernel_.body[i].kind == Instruction::Kind::product) four.set(static_cast<int>(i), "products");
  return four;
}

void Epilogue::write_four() {
  shader_.begin_function("fn finish_four(batch: u32, row: u32, column: u32, products: vec4f)");
  four_writer().store(kernel_.stores);
  shader_.end_function();
}

int Epilogue::write_four_after_loads() {
  const std::size_t axis = kernel_.domain.size() - 1;
  const FourWriter fours(shader_, kernel_, axis, std::vector<std::string>(kernel_.domain.size(), "0u"),
                         {problem_.a->binding, problem_.b->binding});
  const auto differs_by_row = [&](const Load& load) {
    return std::any_of(load.map.strides.begin(), load.map.strides.end() - 1,
                       [](const Dim& stride) { return !(stride == Dim(0)); });
  };
  std::vector<int> early;  // instructions
  std::string parameters;
  for (std::size_t i = 0; i < kernel_.body.size(); ++i) {
    if (kernel_.body[i].kind != Instruction::Kind::load) continue;
    const Load& load = kernel_.loads[static_cast<std::size_t>(kernel_.body[i].index)];
    if (!load.masks.empty() || !fours.is_adjacent(load) || !differs_by_row(load)) continue;
    shader_.begin_function(fmt::format("fn early_{}(batch: u32, row: u32, column: u32) -> vec4f", early.size()));
    std::vector<std::string> indices = write_indices();
    indices.emplace_back("column");
    shader_.line("return {};", shader_.load_four(load.binding, shader_.place(load.map, indices)));
    shader_.end_function();
    parameters += fmt::format(", loaded_{}: vec4f", early.size());
    early.push_back(static_cast<int>(i));
  }
  shader_.begin_function(
      fmt::format("fn finish_four(batch: u32, row: u32, column: u32, products: vec4f{})", parameters));
  FourWriter four = four_writer();
  for (std::size_t i = 0; i < early.size(); ++i) four.set(early[i], fmt::format("loaded_{}", i));
  four.store(kernel_.stores);
  shader_.end_function();
  return static_cast<int>(early.size());
}

PartialResults::PartialResults(KernelWriter& writer, const MatmulProblem& problem, std::int64_t chunks)
    : problem_(problem),
      chunks_(chunks),
      memory_(
          writer.workspace(DType::f32, element_count(problem.batch) * problem.rows * problem.columns * Dim(chunks))) {}

std::string PartialResults::place(Shader& shader, const std::string& row, const std::string& column) const {
  return fmt::format("((batch * {}u + chunk) * {} + {}) * {} + {}", chunks_, shader.size(problem_.rows), row,
                     shader.size(problem_.columns), column);
}

void PartialResults::write_sum(KernelWriter& writer) const {
  constexpr int threads = 128;
  Shader shader = writer.shader("matmul_parts", threads);
  Epilogue epilogue(shader, writer.kernel(), problem_);
  const bool in_fours = epilogue.can_take_four() && shader.can_be_wide(memory_);
  if (in_fours)
    epilogue.write_four();
  else
    epilogue.write();
  const int width = in_fours ? 4 : 1;
  const Dim plane = problem_.rows * problem_.columns, count = element_count(problem_.batch) * plane;
  shader.line("let number = (group * {}u + lane) * {}u;", threads, width);
  shader.line("if (number >= {}) {{ return; }}", shader.size(count));
  shader.line("let batch = number / {0}; let element = number % {0};", shader.size(plane));
  shader.line("let row = element / {0}; let column = element % {0};", shader.size(problem_.columns));
  shader.line("var sum = {};", in_fours ? "vec4f()" : "0.0");
  shader.open("for (var chunk = 0u; chunk < {}u; chunk++) {{", chunks_);
  const std::string place = fmt::format("(batch * {}u + chunk) * {} + element", chunks_, shader.size(plane));
  shader.line("sum += {};", in_fours ? shader.load_four(memory_, place) : shader.load(memory_, place));
  shader.close();
  shader.line("{}(batch, row, column, sum);", in_fours ? "finish_four" : "finish");
  writer.add(std::move(shader), groups_of(count, std::int64_t{threads} * width));
}

}  // namespace jerboa::wgsl
