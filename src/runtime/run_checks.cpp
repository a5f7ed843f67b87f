#include "runtime/run_checks.h"

#include <fmt/format.h>
#include <sstream>

#include <jerboa/base/error.h>
#include <jerboa/lower/program.h>

namespace jerboa::detail {
namespace {

// Whether a kernel's label, a list of the tensors that it stores, contains a tensor or the result of its check.
bool lists(const std::string& label, const std::string& tensor) {
  std::istringstream words(label);
  for (std::string word; words >> word;) {
    if (word.ends_with(',')) word.pop_back();  // between kernels that were folded into one
    if (word == tensor || word == tensor + check_suffix) return true;
  }
  return false;
}

// The labels of a program's kernels. One from a file for a GPU has only steps, which may be several kernels at once.
std::vector<std::string> labels_of(const Program& program) {
  std::vector<std::string> labels;
  for (const Dispatch& dispatch : program.cpu.dispatches)
    for (const Dispatch::Part& part : dispatch.parts) labels.push_back(part.label);
  if (!labels.empty()) return labels;
  constexpr std::string_view between = " + ";
  for (const GpuStep& step : program.gpu.steps) {
    std::string rest = step.label;
    for (auto end = rest.find(between); end != std::string::npos; end = rest.find(between)) {
      labels.push_back(rest.substr(0, end));
      rest = rest.substr(end + between.size());
    }
    labels.push_back(rest);
  }
  return labels;
}

// The label of the kernel that computes a tensor; empty if that is not known.
std::string kernel_of(const Executable& executable, const std::string& tensor) {
  const Program* program = executable.program();
  if (program == nullptr) return {};
  for (const std::string& label : labels_of(*program))
    if (lists(label, tensor)) return label;
  return {};
}

std::string in_parentheses(const std::string& site) { return site.empty() ? "" : " (" + site + ")"; }

bool is_leaf(Op op) { return info(op).lowering == Lowering::Leaf; }

std::string_view kind_of_leaf(Op op) {
  if (op == Op::tensor_input) return "an input";
  if (op == Op::param_input) return "a parameter";
  return op == Op::state_input ? "a state" : "a constant";
}

[[noreturn]] void throw_not_finite(const RunChecks::Value& value, const Executable& executable) {
  if (is_leaf(value.op))
    throw NotFiniteError(fmt::format("{} holds NaN or infinity before the run: it is {}{}", value.name,
                                     kind_of_leaf(value.op), in_parentheses(value.site)));
  const std::string kernel = kernel_of(executable, value.name);
  throw NotFiniteError(fmt::format("{} is not finite: {} produced NaN or infinity{}{}", value.name, name(value.op),
                                   kernel.empty() ? "" : fmt::format(" in kernel '{}'", kernel),
                                   in_parentheses(value.site)));
}

}  // namespace

void throw_failed_checks(const RunChecks& checks, const Executable& executable, RunResults& results,
                         const SymbolValues& symbols) {
  // Indices come first: an element read from the wrong place may be the one that is not finite.
  if (!checks.indices.empty()) {
    const HostTensor extremes = results.read(index_extremes);
    for (std::size_t i = 0; i < checks.indices.size(); ++i) {
      const auto& check = checks.indices[i];
      const std::int64_t smallest = extremes.i32()[2 * i], largest = extremes.i32()[2 * i + 1];
      const std::int64_t limit = check.range.limit.evaluate(symbols);
      if (smallest > largest) continue;  // there are none
      const bool low = smallest < 0 && !check.range.negative_is_none;
      if (low || largest >= limit)
        throw UsageError(out_of_range(low ? smallest : largest, check.name, check.user, limit, check.site));
    }
  }
  if (checks.finite.empty()) return;
  const HostTensor flags = results.read(finite_flags);
  for (std::size_t i = 0; i < checks.finite.size(); ++i)
    if (flags.i32()[i] == 0) throw_not_finite(checks.finite[i], executable);
}

}  // namespace jerboa::detail
