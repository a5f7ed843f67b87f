#include "wgsl/recurrent_tokens.h"

#include "wgsl/lines.h"

namespace jerboa::wgsl {
namespace {

const TensorAccess* optional_operand(const KernelSpec& kernel, std::size_t i) {
  return i < kernel.operands.size() && kernel.operands[i].binding >= 0 ? &kernel.operands[i] : nullptr;
}

}  // namespace

RecurrentTokens::RecurrentTokens(const KernelSpec& kernel, const TensorAccess& x, std::size_t positions_operand,
                                 bool with_slots)
    : state(optional_operand(kernel, 0)),
      positions(optional_operand(kernel, positions_operand)),
      slots(with_slots ? optional_operand(kernel, positions_operand + 1) : nullptr),
      time(x.shape[1]) {}

void RecurrentTokens::write_row(Shader& shader, const std::string& batch) const {
  if (slots != nullptr)
    shader.line("let row = u32({}); let has_row = row < {};", shader.load(*slots, {batch}),
                shader.size(state->shape[0]));
  else
    shader.line("let row = {}; let has_row = true;", batch);
}

void RecurrentTokens::write_has_state(Shader& shader, const std::string& batch) const {
  shader.line("var has_state = {};", state != nullptr ? "has_row" : "false");
  if (state == nullptr || positions == nullptr) return;
  shader.open("for (var token = 0u; token < {}; token++) {{", shader.size(time));
  shader.line("let position = i32({});", shader.load(*positions, {batch, "token"}));
  shader.line("if (position >= 0) {{ has_state = has_state && position > 0; break; }}");
  shader.close();
}

std::string RecurrentTokens::is_real(Shader& shader, const std::string& batch, const std::string& token) const {
  return positions == nullptr ? "true" : fmt::format("(i32({}) >= 0)", shader.load(*positions, {batch, token}));
}

void RecurrentTokens::write_other_rows(KernelWriter& writer) const {
  const TensorAccess& next = writer.kernel().results[0];
  if (slots != nullptr && state->binding != next.binding) write_copy(writer, *state, next);
}

}  // namespace jerboa::wgsl
