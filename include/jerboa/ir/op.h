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

/// How the compiler treats an op; see ops.def.
enum class Lowering : std::uint8_t {
  Leaf,
  View,
  Map,
  Reduce,
  Whole,
  Scan,
  Sort,
  Template,
  Matmul,
  GroupedMatmul,
  Conv,
  Pool,
  Attention,
  Gather,
  Scatter,
  Decompose
};
enum class Gradient : std::uint8_t { Rule, Decompose, Zero, None };

struct OperandInfo {
  enum class Kind : std::uint8_t { any, integer, boolean };
  std::string name;
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
  Gradient gradient;
  std::string_view doc;
  Attrs default_attrs;
};

const OpInfo& info(Op op);
std::span<const OpInfo> op_table();
std::optional<Op> op_from_name(std::string_view name);
inline std::string_view name(Op op) { return info(op).name; }
std::string_view name(Lowering lowering);
std::string_view name(Gradient gradient);

}  // namespace jerboa
