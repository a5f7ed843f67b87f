#include "wgsl/finishing.h"

#include <algorithm>

#include "wgsl/body.h"
#include "wgsl/recurrent_tokens.h"

namespace jerboa::wgsl {
namespace {

std::string rounded(Shader& shader, DType dtype, const std::string& value) {
  if (bits(dtype) == 32) return value;
  Instruction rounding;
  rounding.kind = Instruction::Kind::compute;
  rounding.op = Op::cast;
  rounding.dtype = dtype;
  return shader.let("rounded", apply(shader, rounding, DType::f32, value, "", ""));
}

void write_loop_element(Shader& shader, const KernelSpec& loop, int memory, const std::string& value) {
  BodyWriter body(shader, loop, shader.split_index("element", loop.domain));
  for (std::size_t i = 0; i < loop.body.size(); ++i)
    if (loop.body[i].kind == Instruction::Kind::load &&
        loop.loads[static_cast<std::size_t>(loop.body[i].index)].binding == memory)
      body.set(static_cast<int>(i), value);
  for (const Store& store : loop.stores) body.value(store.value);
  for (const Store& store : loop.stores) body.store(store);
}

// `value` is the newest of the inputs that a result depends on; the others are in the state, oldest first.
void write_convolved_element(Shader& shader, const KernelSpec& kernel, const std::string& value) {
  const TensorAccess &x = kernel.operands[1], &weight = kernel.operands[2], &next = kernel.results[0];
  const RecurrentTokens tokens(kernel, x, 3, true);
  const std::int64_t before = weight.shape[1].value() - 1;
  const std::string offset = shader.size(x.offset);
  if (x.shape[0] == Dim(1))
    shader.line("let batch = 0u; let channel = element - {};", offset);
  else
    shader.line("let batch = element / {0}; let channel = element % {0} - {1};", shader.size(x.strides[0]), offset);
  shader.line("if (channel >= {}) {{ return; }}", shader.size(x.shape[2]));
  tokens.write_row(shader, "batch");
  tokens.write_has_state(shader, "batch");
  // A load behind a branch would wait for the condition.
  shader.line("let safe_row = select(0u, row, has_row);");
  std::vector<std::string> inputs;
  for (std::int64_t i = 0; i < before; ++i)
    inputs.push_back(
        shader.let("input", fmt::format("select(0.0, {}, has_state)",
                                        shader.load(*tokens.state, {"safe_row", fmt::format("{}u", i), "channel"}))));
  inputs.push_back(value);
  std::string sum;
  for (std::size_t i = inputs.size(); i-- > 0;)
    sum += fmt::format("{}{} * {}", sum.empty() ? "" : " + ", shader.load(weight, {"channel", fmt::format("{}u", i)}),
                       inputs[i]);
  shader.line("let real = {};", tokens.is_real(shader, "batch", "0u"));
  shader.line("let sum = {};", sum);
  shader.open("if (has_row && real) {{");
  for (std::int64_t i = 0; i < before; ++i)
    shader.store(next, {"row", fmt::format("{}u", i), "channel"}, inputs[static_cast<std::size_t>(i) + 1]);
  shader.close();
  shader.store(kernel.results[1], {"batch", "0u", "channel"}, "select(0.0, sum, real)");
}

}  // namespace

bool takes_elements(const KernelSpec& loop, int memory) {
  return loop.kind == KernelSpec::Kind::loop &&
         std::all_of(loop.loads.begin(), loop.loads.end(), [&](const Load& load) {
           return load.binding != memory ||
                  (load.masks.empty() && load.indirect < 0 && is_row_major(loop.domain, load.map));
         });
}

bool convolves_elements(const KernelSpec& convolution, const Shape& domain) {
  if (convolution.kind != KernelSpec::Kind::whole || convolution.op != Op::causal_conv1d) return false;
  const TensorAccess &state = convolution.operands[0], &x = convolution.operands[1], &y = convolution.results[1];
  const Dim end = x.offset + x.shape[2], columns = domain.back();
  const bool is_of_each_row = x.strides[0] == columns && element_count(domain) == x.shape[0] * columns;
  return state.binding >= 0 && state.binding == convolution.results[0].binding && x.shape[1] == Dim(1) &&
         (x.shape[0] == Dim(1) || is_of_each_row) && x.strides[2] == Dim(1) && columns.is_constant() &&
         end.is_constant() && end.value() <= columns.value() && y.offset == Dim(0);
}

void write_finished_element(Shader& shader, const KernelSpec& kernel, int memory, DType dtype) {
  const std::string value = rounded(shader, dtype, "value");
  if (kernel.kind == KernelSpec::Kind::loop)
    write_loop_element(shader, kernel, memory, value);
  else
    write_convolved_element(shader, kernel, value);
}

}  // namespace jerboa::wgsl
