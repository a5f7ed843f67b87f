#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/ir/attrs.h>

namespace jerboa {

/// Every op; the table in ops.def has a row for each.
enum class Op : std::uint8_t {
#define OP(name, ...) name,
#include <jerboa/ir/ops.def>
#undef OP
};

inline constexpr int op_count = 0
#define OP(...) +1
#include <jerboa/ir/ops.def>
#undef OP
    ;

/// What the compiler turns an op into; see ops.def.
enum class Lowering : std::uint8_t { Leaf, View, Loop, Reduce, Product, Whole, Expand, Decompose };
/// Other properties of an op that the compiler uses, as a set; see ops.def.
enum class Trait : std::uint16_t {
  Plain = 0,
  Computed = 1 << 0,
  LooksUp = 1 << 1,
  AddsAxis = 1 << 2,
  Moves = 1 << 3,
  Cheap = 1 << 4,
  ReadsCheap = 1 << 5,
  Costly = 1 << 6,
  Recomputable = 1 << 7,
  Overwrites = 1 << 8,
  HeadsInside = 1 << 9,
  Folds = 1 << 10,
  Half = 1 << 11,
  KeepsHalf = 1 << 12
};
constexpr Trait operator|(Trait a, Trait b) {
  return static_cast<Trait>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
enum class Gradient : std::uint8_t { Rule, Decompose, Zero, None };

/// The axis of another operand that indices count along.
struct IndexedAxis {
  int operand = 0;
  std::optional<int> axis;  ///< none: the axis that the attributes name
  bool negative_is_none = false;
};

struct OperandInfo {
  enum class Kind : std::uint8_t { any, integer, boolean };
  std::string name;
  std::optional<IndexedAxis> indexes;  ///< for indices that must be in range
  Kind kind = Kind::any;
  bool optional = false;
  bool variadic = false;
};

/// A row of the op table.
struct OpInfo {
  Op op;
  std::string_view name;
  std::vector<OperandInfo> operands;
  std::string_view attrs_name;
  Lowering lowering;
  Trait traits;
  Gradient gradient;
  std::string_view doc;
  Attrs default_attrs;
};

const OpInfo& info(Op op);
/// Whether an op has one of these traits.
inline bool has(Op op, Trait traits) {
  return (static_cast<unsigned>(info(op).traits) & static_cast<unsigned>(traits)) != 0;
}
/// Whether an op's result is in memory before anything runs: an input, a parameter, a state, a constant tensor.
inline bool is_stored_leaf(Op op) { return info(op).lowering == Lowering::Leaf && !has(op, Trait::Computed); }
std::span<const OpInfo> op_table();
std::optional<Op> op_from_name(std::string_view name);
inline std::string_view name(Op op) { return info(op).name; }
std::string_view name(Lowering lowering);
/// "LooksUp, AddsAxis"; empty for Plain.
std::string names(Trait traits);
std::string_view name(Gradient gradient);

}  // namespace jerboa
