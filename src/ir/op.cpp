#include <algorithm>
#include <array>
#include <map>

#include <jerboa/ir/op.h>

#include "base/browser_build.h"

namespace jerboa {
namespace {

// Parses "k.0": an axis of one of the operands before this one.
IndexedAxis parse_indexed_axis(std::string_view text, const std::vector<OperandInfo>& before) {
  const std::size_t dot = text.find('.');
  const std::string_view axis = text.substr(dot + 1);
  IndexedAxis indexed;
  while (before[static_cast<std::size_t>(indexed.operand)].name != text.substr(0, dot)) ++indexed.operand;
  if (axis != "axis") indexed.axis = axis == "-1" ? -1 : axis.front() - '0';
  return indexed;
}

OperandInfo parse_operand(std::string_view text, const std::vector<OperandInfo>& before) {
  OperandInfo operand;
  const auto ends_with = [&](std::string_view suffix) {
    if (!text.ends_with(suffix)) return false;
    text.remove_suffix(suffix.size());
    return true;
  };
  operand.variadic = ends_with("...");
  operand.optional = ends_with("?");
  const bool negative_is_none = ends_with("|none");
  if (const std::size_t below = text.find('<'); below != std::string_view::npos) {
    operand.indexes = parse_indexed_axis(text.substr(below + 1), before);
    operand.indexes->negative_is_none = negative_is_none;
    text = text.substr(0, below);
  }
  if (ends_with(":int")) operand.kind = OperandInfo::Kind::integer;
  if (ends_with(":bool")) operand.kind = OperandInfo::Kind::boolean;
  operand.name = text;
  return operand;
}

std::vector<OperandInfo> parse_operands(std::string_view text) {
  std::vector<OperandInfo> operands;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    operands.push_back(parse_operand(text.substr(0, end), operands));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return operands;
}

template <class T>
Attrs default_attrs() {
  return T{};
}

// Browsers have no use for it, and every visitor would download it.
constexpr std::string_view documented([[maybe_unused]] std::string_view doc) {
  return detail::is_browser_build ? std::string_view() : doc;
}

// A row as constants alone, since code that builds each row separately is large.
struct OpRow {
  Op op;
  std::string_view name, operands, attrs_name;
  Lowering lowering;
  Trait traits;
  Gradient gradient;
  std::string_view doc;
  Attrs (*attrs)();
};

constexpr auto op_rows = [] {
  using enum Trait;
  return std::to_array<OpRow>({
#define OP(name, operands, attrs, rule, lowering, traits, gradient, doc) \
  {Op::name,                                                             \
   #name,                                                                \
   operands,                                                             \
   #attrs,                                                               \
   Lowering::lowering,                                                   \
   traits,                                                               \
   Gradient::gradient,                                                   \
   documented(doc),                                                      \
   default_attrs<attrs>},
#include <jerboa/ir/ops.def>
#undef OP
  });
}();

const std::vector<OpInfo>& table() {
  static const auto infos = [] {
    std::vector<OpInfo> all;
    for (const OpRow& row : op_rows)
      all.push_back({row.op, row.name, parse_operands(row.operands), row.attrs_name, row.lowering, row.traits,
                     row.gradient, row.doc, row.attrs()});
    return all;
  }();
  return infos;
}

}  // namespace

const OpInfo& info(Op op) { return table()[static_cast<std::size_t>(op)]; }

std::span<const OpInfo> op_table() { return table(); }

std::optional<Op> op_from_name(std::string_view name) {
  static const auto by_name = [] {
    std::map<std::string_view, Op> map;
    for (const OpInfo& row : table()) map.emplace(row.name, row.op);
    return map;
  }();
  const auto found = by_name.find(name);
  if (found == by_name.end()) return std::nullopt;
  return found->second;
}

std::string_view name(Lowering lowering) {
  constexpr auto names =
      std::to_array<std::string_view>({"Leaf", "View", "Loop", "Reduce", "Product", "Whole", "Expand", "Decompose"});
  static_assert(names.size() == static_cast<std::size_t>(Lowering::Decompose) + 1);
  return names[static_cast<std::size_t>(lowering)];
}

std::string names(Trait traits) {
  constexpr auto all =
      std::to_array<std::string_view>({"Computed", "LooksUp", "AddsAxis", "Moves", "Cheap", "ReadsCheap", "Costly",
                                       "Recomputable", "Overwrites", "HeadsInside", "Folds", "Half", "KeepsHalf"});
  static_assert(1U << (all.size() - 1) == static_cast<unsigned>(Trait::KeepsHalf));
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((static_cast<unsigned>(traits) >> i & 1U) == 0) continue;
    if (!text.empty()) text += ", ";
    text += all[i];
  }
  return text;
}

std::string_view name(Gradient gradient) {
  constexpr auto names = std::to_array<std::string_view>({"Rule", "Decompose", "Zero", "None"});
  return names[static_cast<std::size_t>(gradient)];
}

}  // namespace jerboa
