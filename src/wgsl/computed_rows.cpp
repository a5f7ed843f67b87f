#include "wgsl/computed_rows.h"

#include <algorithm>
#include <fmt/ranges.h>

#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

bool is_computed_by_fours(const KernelSpec& loop, const Dim& length) {
  if (loop.kind != KernelSpec::Kind::loop || loop.row_axes > 1 || loop.stores.size() != 1 || loop.domain.empty() ||
      !(loop.domain.back() == length) || !is_multiple(length, 4) || !is_float(loop.stores.front().dtype) ||
      !is_row_major(loop.domain, loop.stores.front().map))
    return false;
  return std::all_of(loop.body.begin(), loop.body.end(), [](const Instruction& instruction) {
    return instruction.kind != Instruction::Kind::reduce ||
           (instruction.op == Op::sum && instruction.dtype == DType::f32);
  });
}

bool has_rows_of(const TensorAccess& operand, const Dim& length) {
  const auto is_whole = [&](const Dim& elements) { return divide_exactly(elements, length).has_value(); };
  if (!(operand.shape.back() == length) || !(operand.strides.back() == Dim(1)) || !is_whole(operand.offset))
    return false;
  for (std::size_t axis = 0; axis + 1 < operand.shape.size(); ++axis)
    if (!(operand.shape[axis] == Dim(1)) && !is_whole(operand.strides[axis])) return false;
  return true;
}

ComputedFours::ComputedFours(Shader& shader, const KernelSpec& loop, const std::vector<std::string>& places)
    : shader_(shader), loop_(loop) {
  for (const std::string& place : places) {
    FourWriter& four = fours_.emplace_back(shader, loop, loop.domain.size() - 1,
                                           shader.split_index(shader.let("place", place), loop.domain));
    four.load_without_branches();
    for (std::size_t i = 0; i < loop.body.size(); ++i)
      if (loop.body[i].kind == Instruction::Kind::load &&
          loop.loads[static_cast<std::size_t>(loop.body[i].index)].indirect < 0)
        four.values(static_cast<int>(i));
  }
}

std::vector<std::string> ComputedFours::finish(const std::function<std::string(const std::string&)>& sum_of_row) {
  for (std::size_t i = 0; i < loop_.body.size(); ++i) {
    if (loop_.body[i].kind != Instruction::Kind::reduce) continue;
    std::vector<std::string> parts;
    for (FourWriter& four : fours_) {
      const auto values = four.values(loop_.body[i].a);
      parts.push_back(fmt::format("(({} + {}) + ({} + {}))", values[0], values[1], values[2], values[3]));
    }
    const std::string sum = sum_of_row(fmt::format("{}", fmt::join(parts, " + ")));
    for (FourWriter& four : fours_) four.set_common(static_cast<int>(i), sum);
  }
  std::vector<std::string> computed;
  for (FourWriter& four : fours_)
    computed.push_back(
        shader_.let("computed", fmt::format("vec4f({})", fmt::join(four.values(loop_.stores.front().value), ", "))));
  return computed;
}

KernelSpec with_rounded_result(KernelSpec loop) {
  Store& store = loop.stores.front();
  if (bits(store.dtype) == 32) return loop;
  Instruction rounding;
  rounding.kind = Instruction::Kind::compute;
  rounding.op = Op::cast;
  rounding.dtype = store.dtype;
  rounding.a = store.value;
  store.value = static_cast<int>(loop.body.size());
  loop.body.push_back(rounding);
  return loop;
}

}  // namespace jerboa::wgsl
