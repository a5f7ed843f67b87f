#include "lower/verify_kernel.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/ir/shapes.h>

#include "lower/quantised.h"

namespace jerboa::detail {
namespace {

// A bound on element offsets and strides; sums of a few of them do not overflow 64 bits.
constexpr std::int64_t most_elements = std::int64_t{1} << 48;
constexpr std::int64_t most_index = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t most_axes = 32;

// Indices along an axis: from `from` up to, but not including, `to`.
struct Range {
  std::int64_t from = 0, to = 0;
  bool empty() const { return from >= to; }
};

class KernelVerifier {
 public:
  KernelVerifier(const KernelSpec& kernel, const std::string& what, const SymbolValues& symbols)
      : kernel_(kernel), what_(what), symbols_(symbols) {}

  std::vector<std::int64_t> run() {
    if (kernel_.bindings < 0 || kernel_.bindings > static_cast<int>(most_bindings()))
      fail("it has {} bindings", kernel_.bindings);
    bytes_.assign(static_cast<std::size_t>(kernel_.bindings), 0);
    check_domain();
    switch (kernel_.kind) {
      case KernelSpec::Kind::loop: check_body(kernel_.row_axes > 0 ? any_number : 0, false); break;
      case KernelSpec::Kind::reduce:
        check_body(1, false);
        check_results_of_reduction();
        break;
      case KernelSpec::Kind::matmul:
        check_body(0, true);
        check_product();
        break;
      case KernelSpec::Kind::whole: check_whole(); break;
    }
    return std::move(bytes_);
  }

 private:
  static constexpr int any_number = -1;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw GraphError(fmt::format("invalid program: {}: {}", what_, fmt::format(text, std::forward<Args>(args)...)));
  }

  // An upper bound: each binding is used by an entry of one of the kernel's lists.
  std::size_t most_bindings() const {
    return kernel_.loads.size() + kernel_.stores.size() + kernel_.operands.size() + kernel_.results.size();
  }

  std::int64_t evaluate(const Dim& dim) const {
    const std::int64_t value = dim.evaluate(symbols_);
    if (value < -most_elements || value > most_elements) fail("{} is too large", dim.str());
    return value;
  }

  std::int64_t times(std::int64_t a, std::int64_t b) const {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product < -most_elements || product > most_elements)
      fail("an index of {} * {} is too large", a, b);
    return product;
  }

  std::vector<std::int64_t> sizes_of(const Shape& shape) const {
    if (shape.size() > most_axes) fail("{} axes are too many", shape.size());
    std::vector<std::int64_t> sizes;
    std::int64_t count = 1;
    for (const Dim& dim : shape) {
      sizes.push_back(evaluate(dim));
      if (sizes.back() < 0) fail("a size of {}", sizes.back());
      count = times(count, std::max<std::int64_t>(sizes.back(), 1));
    }
    return sizes;
  }

  void check_domain() {
    sizes_ = sizes_of(kernel_.domain);
    if (kernel_.row_axes < 0 || kernel_.row_axes > static_cast<int>(sizes_.size()))
      fail("{} of {} axes cannot be reduced", kernel_.row_axes, sizes_.size());
  }

  // Records how far into a binding offset + sum of stride * index reaches for indices in these ranges, plus `more`
  // elements for a gather. Strides are checked against their axes even if nothing is accessed, so that no arithmetic on
  // them overflows.
  void reach(int binding, DType dtype, const Dim& offset, const std::vector<Dim>& strides,
             const std::vector<std::int64_t>& sizes, const std::vector<Range>& ranges, std::int64_t more = 0) {
    if (binding < 0 || binding >= kernel_.bindings) fail("there is no binding {}", binding);
    if (strides.size() != sizes.size()) fail("{} strides for {} axes", strides.size(), sizes.size());
    std::int64_t low = evaluate(offset) + std::min<std::int64_t>(more, 0);
    std::int64_t high = evaluate(offset) + std::max<std::int64_t>(more, 0);
    bool empty = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int64_t stride = evaluate(strides[i]);
      times(stride, std::max<std::int64_t>(sizes[i], 1));
      empty = empty || ranges[i].empty();
      if (ranges[i].empty()) continue;
      const std::int64_t first = times(stride, ranges[i].from), last = times(stride, ranges[i].to - 1);
      low += std::min(first, last);
      high += std::max(first, last);
    }
    if (empty) return;
    if (low < 0) fail("binding {} is accessed {} elements before its start", binding, -low);
    auto& bytes = bytes_[static_cast<std::size_t>(binding)];
    bytes = std::max(bytes, bytes_of(dtype, high + 1));
  }

  static std::vector<Range> all_of(const std::vector<std::int64_t>& sizes) {
    std::vector<Range> ranges;
    for (const std::int64_t size : sizes) ranges.push_back({0, size});
    return ranges;
  }

  // Throws unless the type can represent the number: otherwise its conversion is undefined.
  void check_number(double value, DType dtype) const {
    if (!can_hold(dtype, value)) fail("{} is not a number of type {}", value, name(dtype));
  }

  void check_element_type(DType dtype) const {
    if (bits(dtype) < 16) fail("{} is only for weights of products", name(dtype));
  }

  void check_load(const Load& load) {
    check_element_type(load.dtype);
    check_number(load.fill, load.dtype);
    std::vector<Range> ranges = all_of(sizes_);
    for (const Mask& mask : load.masks) {
      if (mask.axis < 0 || mask.axis >= static_cast<int>(sizes_.size())) fail("a mask along axis {}", mask.axis);
      Range& range = ranges[static_cast<std::size_t>(mask.axis)];
      range = {std::max(range.from, evaluate(mask.from)), std::min(range.to, evaluate(mask.to))};
    }
    std::int64_t more = 0;
    if (load.indirect < -1 || load.indirect >= static_cast<int>(kernel_.body.size()))
      fail("a gather by instruction {}", load.indirect);
    if (load.indirect >= 0)
      more = times(evaluate(load.indirect_stride), std::max<std::int64_t>(evaluate(load.indirect_limit) - 1, 0));
    reach(load.binding, load.dtype, load.map.offset, load.map.strides, sizes_, ranges, more);
  }

  void check_body(int reductions, bool has_product) {
    for (const Load& load : kernel_.loads) check_load(load);
    const int found = check_instructions(kernel_.body, has_product);
    if (reductions != any_number && found != reductions) fail("it has {} reductions, not {}", found, reductions);
    for (const Store& store : kernel_.stores) {
      if (store.value < 0 || store.value >= static_cast<int>(kernel_.body.size()))
        fail("instruction {} cannot be stored", store.value);
      check_element_type(store.dtype);
      if (store.dtype != kernel_.body[static_cast<std::size_t>(store.value)].dtype)
        fail("instruction {} is stored as {}", store.value, name(store.dtype));
      reach(store.binding, store.dtype, store.map.offset, store.map.strides, sizes_, all_of(sizes_));
    }
    if (kernel_.kind != KernelSpec::Kind::matmul && !kernel_.operands.empty())
      fail("it has operands, which only products have");
    if (!kernel_.results.empty()) fail("it has results of whole tensors");
  }

  // Returns the number of reductions.
  int check_instructions(const std::vector<Instruction>& body, bool has_product) const {
    int reductions = 0;
    for (std::size_t i = 0; i < body.size(); ++i) {
      const Instruction& instruction = body[i];
      check_element_type(instruction.dtype);
      for (const int operand : {instruction.a, instruction.b, instruction.c})
        if (operand < -1 || operand >= static_cast<int>(i))
          fail("instruction {} uses {}, which is not before it", i, operand);
      switch (instruction.kind) {
        case Instruction::Kind::load: check_load_instruction(i, instruction); break;
        case Instruction::Kind::constant:
          check_number(instruction.number, instruction.dtype);
          check_number(static_cast<double>(evaluate(instruction.dim)), instruction.dtype);
          break;
        case Instruction::Kind::position: check_position(instruction); break;
        case Instruction::Kind::compute: check_compute(body, i); break;
        case Instruction::Kind::reduce:
          check_reduce(body, i);
          ++reductions;
          break;
        case Instruction::Kind::product:
          if (!has_product || !is_float(instruction.dtype))
            fail("instruction {} is a product in a kernel without one", i);
          break;
      }
    }
    return reductions;
  }

  void check_load_instruction(std::size_t number, const Instruction& instruction) const {
    if (instruction.index < 0 || instruction.index >= static_cast<int>(kernel_.loads.size()))
      fail("there is no load {}", instruction.index);
    const Load& load = kernel_.loads[static_cast<std::size_t>(instruction.index)];
    if (load.dtype != instruction.dtype) fail("load {} is of type {}", instruction.index, name(load.dtype));
    if (load.indirect < 0) return;
    if (load.indirect >= static_cast<int>(number) ||
        !is_integer(kernel_.body[static_cast<std::size_t>(load.indirect)].dtype))
      fail("load {} gathers by instruction {}, which is not an index before it", instruction.index, load.indirect);
  }

  // Positions are i32: one that overflows would be another element's.
  void check_position(const Instruction& instruction) const {
    if (instruction.dtype != DType::i32) fail("a position of type {}", name(instruction.dtype));
    if (instruction.index < 0 || instruction.index >= static_cast<int>(sizes_.size()))
      fail("a position along axis {}", instruction.index);
    const std::int64_t last = std::max<std::int64_t>(sizes_[static_cast<std::size_t>(instruction.index)] - 1, 0);
    const std::int64_t from = evaluate(instruction.dim), to = from + times(evaluate(instruction.dim_scale), last);
    for (const std::int64_t end : {from, to})
      if (end < -most_index || end > most_index)
        fail("an index of {} does not fit i32: a tensor is too large to count its elements along an axis", end);
  }

  void check_compute(const std::vector<Instruction>& body, std::size_t number) const {
    const Instruction& instruction = body[number];
    const OpInfo& row = info(instruction.op);
    const bool looks_up =
        has(instruction.op, Trait::LooksUp) && instruction.op != Op::random;  // whose key is loaded like any operand
    if (row.lowering != Lowering::Loop || instruction.op == Op::arange || looks_up ||
        has(instruction.op, Trait::Moves | Trait::AddsAxis))
      fail("instruction {} computes {}, which is not element-wise", number, row.name);
    const int operands[] = {instruction.a, instruction.b, instruction.c};
    const std::size_t count = instruction.op == Op::random ? 3 : row.operands.size();
    for (std::size_t i = 0; i < 3; ++i) {
      const bool optional = i < row.operands.size() && row.operands[i].optional;
      if (operands[i] >= 0 ? i >= count : i < count && !optional)
        fail("instruction {}: {} does not have {} operands", number, row.name, i + (operands[i] >= 0 ? 1 : 0));
    }
    check_types(body, number);
  }

  void check_types(const std::vector<Instruction>& body, std::size_t number) const {
    const Instruction& instruction = body[number];
    const auto type = [&](int operand) { return body[static_cast<std::size_t>(operand)].dtype; };
    bool fine = true;
    switch (instruction.op) {
      case Op::cast: break;
      case Op::random:
        fine = type(instruction.a) == DType::i32 && is_integer(type(instruction.b)) &&
               is_integer(type(instruction.c)) && instruction.dtype == DType::f32;
        break;
      case Op::where:
        fine = type(instruction.a) == DType::boolean && type(instruction.b) == instruction.dtype &&
               type(instruction.c) == instruction.dtype;
        break;
      case Op::equal:
      case Op::not_equal:
      case Op::less:
      case Op::less_equal:
      case Op::greater:
      case Op::greater_equal:
        fine = type(instruction.a) == type(instruction.b) && instruction.dtype == DType::boolean;
        break;
      default:
        fine =
            type(instruction.a) == instruction.dtype && (instruction.b < 0 || type(instruction.b) == instruction.dtype);
        break;
    }
    if (!fine) fail("instruction {}: {} has operands of the wrong types", number, name(instruction.op));
    if (instruction.op == Op::clamp && !(instruction.number <= instruction.number2))
      fail("instruction {}: clamp between {} and {}", number, instruction.number, instruction.number2);
  }

  void check_reduce(const std::vector<Instruction>& body, std::size_t number) const {
    const Instruction& instruction = body[number];
    if (instruction.a < 0 || instruction.b >= 0 || instruction.c >= 0)
      fail("instruction {}: a reduction has one operand", number);
    const DType operand = body[static_cast<std::size_t>(instruction.a)].dtype;
    switch (instruction.op) {
      case Op::sum:
      case Op::max:
      case Op::min:
        if (operand != instruction.dtype || operand == DType::boolean)
          fail("instruction {}: a reduction of {} to {}", number, name(operand), name(instruction.dtype));
        break;
      case Op::argmax:
        if (instruction.dtype != DType::i32) fail("instruction {}: argmax gives i32", number);
        check_row_length();
        break;
      case Op::all_finite:
        if (instruction.dtype != DType::boolean || !is_float(operand))
          fail("instruction {}: all_finite needs a float operand", number);
        break;
      default: fail("instruction {}: {} is not a reduction", number, name(instruction.op));
    }
  }

  void check_row_length() const {
    std::int64_t length = 1;
    for (std::size_t i = sizes_.size() - static_cast<std::size_t>(kernel_.row_axes); i < sizes_.size(); ++i)
      length = times(length, sizes_[i]);
    if (length > most_index) fail("an index of {} does not fit i32: too many elements for argmax", length - 1);
  }

  // Values computed from a reduction's results have only the axes that it keeps.
  void check_results_of_reduction() const {
    const int kept = static_cast<int>(sizes_.size()) - kernel_.row_axes;
    std::vector<bool> wanted(kernel_.body.size(), false);
    for (const Store& store : kernel_.stores) wanted[static_cast<std::size_t>(store.value)] = true;
    for (std::size_t i = kernel_.body.size(); i-- > 0;) {
      const Instruction& instruction = kernel_.body[i];
      if (!wanted[i] || instruction.kind == Instruction::Kind::reduce) continue;
      const auto want = [&](int operand) {
        if (operand >= 0) wanted[static_cast<std::size_t>(operand)] = true;
      };
      for (const int operand : {instruction.a, instruction.b, instruction.c}) want(operand);
      bool fine = instruction.kind != Instruction::Kind::position || instruction.index < kept;
      if (instruction.kind == Instruction::Kind::load) {
        const Load& load = kernel_.loads[static_cast<std::size_t>(instruction.index)];
        want(load.indirect);
        fine = std::all_of(load.masks.begin(), load.masks.end(), [&](const Mask& mask) { return mask.axis < kept; });
      }
      if (!fine) fail("instruction {} of a result runs along an axis that is reduced", i);
    }
  }

  // Products

  void check_operand(const TensorAccess& operand) {
    const auto sizes = sizes_of(operand.shape);
    reach(operand.binding, operand.dtype, operand.offset, operand.strides, sizes, all_of(sizes));
  }

  void check_product() {
    const std::size_t rank = kernel_.domain.size();
    const bool quantised = kernel_.op == Op::matmul_quantised;
    if (rank < 2 || kernel_.row_axes != 0 || (kernel_.op != Op::matmul && !quantised) ||
        kernel_.operands.size() < (quantised ? 3u : 2u) || kernel_.operands.size() > (quantised ? 4u : 2u))
      fail("it is not a product of two matrices");
    const Shape &a = kernel_.operands[0].shape, &b = kernel_.operands[1].shape;
    bool fine = a.size() == rank && b.size() == rank;
    for (std::size_t i = 0; fine && i + 2 < rank; ++i) fine = a[i] == kernel_.domain[i] && b[i] == kernel_.domain[i];
    fine = fine && a[rank - 2] == kernel_.domain[rank - 2] && b[rank - 1] == kernel_.domain[rank - 1] &&
           a[rank - 1] == b[rank - 2];
    if (!fine) fail("{} times {} does not give {}", to_string(a), to_string(b), to_string(kernel_.domain));
    for (std::size_t i = 0; i < 2; ++i) {
      const TensorAccess& access = kernel_.operands[i];
      if (!(is_float(access.dtype) || (i == 1 && quantised && bits(access.dtype) < 16)))
        fail("an operand is {}", name(access.dtype));
      check_operand(access);
      check_prologue(access);
    }
    if (quantised) check_quantised();
    // A product that is only stored is written row by row, ignoring the strides.
    if (kernel_.body.size() == 1)
      for (const Store& store : kernel_.stores)
        if (!is_row_major(sizes_, store.map.strides)) fail("a product is not stored in row-major order");
  }

  void check_prologue(const TensorAccess& operand) const {
    const auto& body = operand.prologue;
    if (body.empty()) return;
    for (std::size_t i = 0; i < body.size(); ++i)
      if (body[i].kind != (i == 0 ? Instruction::Kind::product : body[i].kind) ||
          (i > 0 && body[i].kind != Instruction::Kind::constant && body[i].kind != Instruction::Kind::compute))
        fail("instruction {} cannot be part of a prologue", i);
    check_instructions(body, true);
    if (body.front().dtype != operand.dtype || !is_float(body.back().dtype))
      fail("a prologue from {} to {}", name(operand.dtype), name(body.back().dtype));
  }

  bool is_row_major(const std::vector<std::int64_t>& sizes, const std::vector<Dim>& strides) const {
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;  // no elements
    std::int64_t expected = 1;
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
      if (sizes[axis] != 1 && evaluate(strides[axis]) != expected) return false;
      expected = times(expected, sizes[axis]);
    }
    return true;
  }

  // Hosts read a quantised weight, transposed, and its scales and minimums from their first elements.
  void check_quantised() {
    const TensorAccess& weight = kernel_.operands[1];
    const auto sizes = sizes_of(weight.shape);
    const std::size_t rank = sizes.size();
    bool fine = (weight.dtype == DType::i8 || weight.dtype == DType::i4) && weight.prologue.empty();
    std::vector<Dim> strides(weight.strides.end() - 2, weight.strides.end());
    std::swap(strides[0], strides[1]);
    fine = fine && evaluate(weight.offset) == 0 && is_row_major({sizes[rank - 1], sizes[rank - 2]}, strides) &&
           evaluate(weight.strides[rank - 1]) == sizes[rank - 2];
    for (std::size_t i = 0; i + 2 < rank; ++i) fine = fine && (sizes[i] == 1 || evaluate(weight.strides[i]) == 0);
    check_scales(2, {sizes[rank - 1], sizes[rank - 2]});
    if (!fine) fail("a quantised weight must be whole and in order");
  }

  // Checks the scales, operand `first`, and the minimums after them.
  void check_scales(std::size_t first, const std::vector<std::int64_t>& weight) {
    for (std::size_t i = first; i < std::min(first + 2, kernel_.operands.size()); ++i) {
      const TensorAccess& scales = kernel_.operands[i];
      if (i > first && kernel_.kind == KernelSpec::Kind::whole && scales.binding == -1) continue;
      const auto sizes = sizes_of(scales.shape);
      if (sizes.size() != weight.size() || !std::equal(sizes.begin(), sizes.end() - 1, weight.begin()) ||
          times(sizes.back(), quantised_group) != weight.back() || !is_float(scales.dtype) ||
          scales.dtype != kernel_.operands[first].dtype || !scales.prologue.empty() ||
          scales.strides.size() != sizes.size() || evaluate(scales.offset) != 0 || !is_row_major(sizes, scales.strides))
        fail("the scales and minimums of a quantised weight must be whole, in order, and one for each {} of a row",
             quantised_group);
      check_operand(scales);
    }
  }

  // Ops on whole tensors

  void check_whole() {
    const OpInfo& row = info(kernel_.op);
    if (row.lowering != Lowering::Whole) fail("{} does not work on whole tensors", row.name);
    if (!kernel_.loads.empty() || !kernel_.body.empty() || !kernel_.stores.empty()) fail("{} has a body", row.name);
    std::vector<TensorType> types;
    types.reserve(kernel_.operands.size());
    std::vector<const TensorType*> inputs;
    for (const TensorAccess& operand : kernel_.operands) {
      if (!operand.prologue.empty()) fail("{} has a prologue", row.name);
      if (operand.binding == -1) {
        inputs.push_back(nullptr);
        continue;
      }
      check_operand(operand);
      types.push_back({operand.dtype, operand.shape});
      inputs.push_back(&types.back());
    }
    const auto wanted = infer(kernel_.op, inputs, kernel_.attrs);
    if (kernel_.results.size() != wanted.size())
      fail("{} gives {} results, not {}", row.name, wanted.size(), kernel_.results.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const TensorAccess& result = kernel_.results[i];
      if (TensorType{result.dtype, result.shape} != wanted[i])
        fail("{} gives {}, not {}", row.name, to_string(wanted[i]), to_string(TensorType{result.dtype, result.shape}));
      check_operand(result);
      check_aliasing(result, i);
    }
    check_weights();
    if (kernel_.op == Op::top_k || kernel_.op == Op::argsort || kernel_.op == Op::cummax) check_sorted_length();
  }

  // If a tensor lies in a fixed part of every `row` elements, that part's first and last; otherwise nullopt.
  static std::optional<std::pair<std::int64_t, std::int64_t>> part_of_rows(const TensorAccess& tensor,
                                                                           std::int64_t row) {
    if (!tensor.offset.is_constant()) return std::nullopt;
    std::int64_t reach = 0;
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      const Dim &size = tensor.shape[axis], &stride = tensor.strides[axis];
      if (!size.is_constant() || !stride.is_constant()) return std::nullopt;
      if (stride.value() < row)
        reach += std::max<std::int64_t>(size.value() - 1, 0) * stride.value();
      else if (stride.value() % row != 0)
        return std::nullopt;
      if (stride.value() < 0 || reach >= row) return std::nullopt;
    }
    const std::int64_t first = tensor.offset.value() % row;
    if (first + reach >= row) return std::nullopt;
    return std::pair(first, first + reach);
  }

  // Whether two tensors lie in different columns of the rows of one matrix.
  static bool are_side_by_side(const TensorAccess& a, const TensorAccess& b) {
    return std::any_of(a.strides.begin(), a.strides.end(), [&](const Dim& row) {
      if (!row.is_constant() || row.value() <= 0) return false;
      const auto first = part_of_rows(a, row.value()), second = part_of_rows(b, row.value());
      return first && second && (first->second < second->first || second->second < first->first);
    });
  }

  // Only the operand that an op overwrites may alias its result, and then element by element.
  void check_aliasing(const TensorAccess& result, std::size_t number) const {
    for (std::size_t i = 0; i < kernel_.operands.size(); ++i) {
      const TensorAccess& access = kernel_.operands[i];
      if (access.binding != result.binding) continue;
      const bool overwritten = i == 0 && number == 0 && has(kernel_.op, Trait::Overwrites) &&
                               access.dtype == result.dtype && access.shape == result.shape &&
                               access.offset == result.offset && access.strides == result.strides;
      if (!overwritten) fail("{} overwrites an operand", name(kernel_.op));
    }
    for (std::size_t i = 0; i < number; ++i)
      if (kernel_.results[i].binding == result.binding && !are_side_by_side(kernel_.results[i], result))
        fail("{} writes two results to one place", name(kernel_.op));
  }

  void check_weights() {
    const std::optional<std::size_t> quantised = quantised_operand(kernel_.op);
    for (const auto* list : {&kernel_.operands, &kernel_.results})
      for (const TensorAccess& access : *list)
        if (access.binding >= 0 && bits(access.dtype) < 16 && !(quantised && &access == &kernel_.operands[*quantised]))
          fail("{} of {}", name(kernel_.op), name(access.dtype));
    if (!quantised) return;
    const TensorAccess& weight = kernel_.operands[*quantised];
    const auto sizes = sizes_of(weight.shape);
    if (bits(weight.dtype) >= 16 || evaluate(weight.offset) != 0 || !is_row_major(sizes, weight.strides))
      fail("a quantised weight must be whole and in order");
    check_scales(*quantised + 1, sizes);
  }

  void check_sorted_length() const {
    for (const std::int64_t size : sizes_of(kernel_.operands[0].shape))
      if (size > most_index) fail("an index of {} does not fit i32: too many elements along an axis", size - 1);
  }

  const KernelSpec& kernel_;
  const std::string& what_;
  const SymbolValues& symbols_;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> bytes_;
};

}  // namespace

bool can_hold(DType dtype, double value) {
  if (is_float(dtype)) return true;
  const double low = dtype == DType::boolean ? 0 : std::numeric_limits<std::int32_t>::min(),
               high = dtype == DType::u32 ? std::numeric_limits<std::uint32_t>::max() : most_index;
  return value >= low && value <= high;
}

std::int64_t bytes_reached(const std::string& what, DType dtype, const Dim& offset, const std::vector<Dim>& strides,
                           const Shape& shape, const SymbolValues& symbols) {
  // A tensor that is read as a whole is checked like a kernel that loads it.
  KernelSpec kernel;
  kernel.domain = shape;
  Load load;
  load.dtype = dtype;
  load.map = {offset, strides};
  kernel.loads.push_back(std::move(load));
  kernel.bindings = 1;
  return verify_kernel(kernel, what, symbols)[0];
}

std::vector<std::int64_t> verify_kernel(const KernelSpec& kernel, const std::string& what,
                                        const SymbolValues& symbols) {
  return KernelVerifier(kernel, what, symbols).run();
}

}  // namespace jerboa::detail
