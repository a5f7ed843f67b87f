#include "wgsl/product/scaled_rows.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "wgsl/body.h"
#include "wgsl/product/problem.h"

namespace jerboa::wgsl {
namespace {

// The dependencies of each instruction of a loop's body.
struct Dependence {
  std::vector<bool> on_element, on_sums;

  explicit Dependence(const KernelSpec& kernel) {
    const auto outer = static_cast<int>(kernel.domain.size()) - kernel.row_axes;
    for (const Instruction& instruction : kernel.body) {
      bool element = false, sums = false;
      for (const int operand : {instruction.a, instruction.b, instruction.c}) {
        if (operand < 0) continue;
        element = element || on_element[static_cast<std::size_t>(operand)];
        sums = sums || on_sums[static_cast<std::size_t>(operand)];
      }
      if (instruction.kind == Instruction::Kind::position) element = instruction.index >= outer;
      if (instruction.kind == Instruction::Kind::load) {
        const Load& load = kernel.loads[static_cast<std::size_t>(instruction.index)];
        if (load.indirect >= 0) element = on_element[static_cast<std::size_t>(load.indirect)];
        element = element || !load.masks.empty() ||
                  std::any_of(load.map.strides.begin() + outer, load.map.strides.end(),
                              [](const Dim& stride) { return !(stride == Dim(0)); });
      }
      if (instruction.kind == Instruction::Kind::reduce) element = false, sums = true;
      on_element.push_back(element);
      on_sums.push_back(sums);
    }
  }
};

struct Factors {
  std::vector<int> of_element, of_row;
  bool separable = true;
};

// The factors of a value: those of each element must not depend on sums.
void find_factors(const KernelSpec& kernel, const Dependence& dependence, int value, Factors& factors) {
  const auto at = static_cast<std::size_t>(value);
  const Instruction& instruction = kernel.body[at];
  if (!dependence.on_element[at]) {
    factors.of_row.push_back(value);
  } else if (!dependence.on_sums[at]) {
    factors.of_element.push_back(value);
  } else if (instruction.kind == Instruction::Kind::compute && instruction.op == Op::mul) {
    find_factors(kernel, dependence, instruction.a, factors);
    find_factors(kernel, dependence, instruction.b, factors);
  } else {
    factors.separable = false;
  }
}

}  // namespace

bool ScaledRows::is_scaled_rows(const KernelSpec& loop, const Dim& rows, const Dim& length) {
  if (loop.kind != KernelSpec::Kind::loop || loop.row_axes == 0 || loop.stores.size() != 1) return false;
  const KernelSpec kernel = merge_axes(loop);
  if (kernel.row_axes != 1 || !(kernel.domain.back() == length) || !is_multiple(length, 4)) return false;
  if (!(element_count(Shape(kernel.domain.begin(), kernel.domain.end() - 1)) == rows)) return false;
  const Store& store = kernel.stores.front();
  if (store.dtype != DType::f32 || !is_row_major(kernel.domain, store.map)) return false;
  const Dependence dependence(kernel);
  for (const Instruction& instruction : kernel.body)
    if (instruction.kind == Instruction::Kind::reduce &&
        (instruction.op != Op::sum || instruction.dtype != DType::f32 ||
         dependence.on_sums[static_cast<std::size_t>(instruction.a)]))
      return false;
  Factors factors;
  find_factors(kernel, dependence, store.value, factors);
  const auto is_f32 = [&](int value) { return kernel.body[static_cast<std::size_t>(value)].dtype == DType::f32; };
  return factors.separable && !factors.of_element.empty() && !factors.of_row.empty() &&
         std::all_of(factors.of_element.begin(), factors.of_element.end(), is_f32) &&
         std::all_of(factors.of_row.begin(), factors.of_row.end(), is_f32);
}

ScaledRows::ScaledRows(Shader& shader, const KernelSpec& loop) : shader_(shader), kernel_(merge_axes(loop)) {
  Factors factors;
  find_factors(kernel_, Dependence(kernel_), kernel_.stores.front().value, factors);
  of_element_ = factors.of_element;
  of_row_ = factors.of_row;
  for (std::size_t i = 0; i < kernel_.body.size(); ++i)
    if (kernel_.body[i].kind == Instruction::Kind::reduce) sums_.push_back(static_cast<int>(i));
}

std::vector<std::string> ScaledRows::totals(int row) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < sums_.size(); ++i) names.push_back(fmt::format("total_{}_{}", row, i));
  return names;
}

void ScaledRows::begin(int row) {
  for (const std::string& name : totals(row)) shader_.line("var {} = 0.0;", name);
}

std::vector<std::string> ScaledRows::indices(const std::string& row) {
  return shader_.split_index(row, {kernel_.domain.begin(), kernel_.domain.end() - 1});
}

std::string ScaledRows::read_four(int row, const std::string& number, const std::string& index) {
  std::vector<std::string> first = indices(index.empty() ? fmt::format("{}u", row) : index);
  const std::string column = shader_.let("column", fmt::format("{} * 4u", number));
  first.push_back(column);
  std::vector<BodyWriter> bodies;
  for (int k = 0; k < 4; ++k) {
    std::vector<std::string> at = first;
    if (k > 0) at.back() = fmt::format("({} + {}u)", column, k);
    bodies.emplace_back(shader_, kernel_, std::move(at));
  }
  for (std::size_t i = 0; i < kernel_.body.size(); ++i) {
    if (kernel_.body[i].kind != Instruction::Kind::load) continue;
    const Load& load = kernel_.loads[static_cast<std::size_t>(kernel_.body[i].index)];
    const bool in_fours = load.masks.empty() && load.indirect < 0 && shader_.can_be_wide(load.binding) &&
                          is_multiple(load.map.offset, 4) && load.map.strides.back() == Dim(1) &&
                          std::all_of(load.map.strides.begin(), load.map.strides.end() - 1,
                                      [](const Dim& stride) { return is_multiple(stride, 4); });
    if (!in_fours) continue;
    const std::string four = shader_.let("four", shader_.load_four(load.binding, shader_.place(load.map, first)));
    for (std::size_t k = 0; k < 4; ++k) bodies[k].set(static_cast<int>(i), fmt::format("{}.{}", four, "xyzw"[k]));
  }
  const std::vector<std::string> names = totals(row);
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    std::vector<std::string> values;
    const int summed = kernel_.body[static_cast<std::size_t>(sums_[i])].a;
    for (BodyWriter& body : bodies) values.push_back(body.value(summed));
    shader_.line("{} += ({} + {}) + ({} + {});", names[i], values[0], values[1], values[2], values[3]);
  }
  std::vector<std::string> elements;
  for (BodyWriter& body : bodies) {
    std::vector<std::string> factors;
    for (const int factor : of_element_) factors.push_back(body.value(factor));
    elements.push_back(fmt::format("{}", fmt::join(factors, " * ")));
  }
  return fmt::format("vec4f({})", fmt::join(elements, ", "));
}

std::string ScaledRows::factor(const std::string& row, const std::vector<std::string>& totals) {
  std::vector<std::string> at = indices(row);
  at.emplace_back("0u");
  BodyWriter body(shader_, kernel_, std::move(at));
  for (std::size_t i = 0; i < sums_.size(); ++i) body.set(sums_[i], totals[i]);
  std::vector<std::string> factors;
  for (const int factor : of_row_) factors.push_back(body.value(factor));
  return shader_.let("factor", fmt::format("{}", fmt::join(factors, " * ")));
}

}  // namespace jerboa::wgsl
