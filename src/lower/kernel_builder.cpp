#include "lower/kernel_builder.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/shapes.h>

#include "lower/inline.h"
#include "lower/quantised.h"

namespace jerboa::detail {

KernelBuilder::KernelBuilder(const Graph& graph, const Fusion& fusion, const std::vector<int>& buffer_of, int group)
    : graph_(graph),
      fusion_(fusion),
      buffer_of_(buffer_of),
      group_number_(group),
      group_(fusion.groups[static_cast<std::size_t>(group)]) {}

KernelSpec KernelBuilder::build() {
  kernel_.kind = group_.kind;
  kernel_.domain = group_.domain;
  kernel_.row_axes = group_.row_axes;
  switch (group_.kind) {
    case KernelSpec::Kind::loop: build_loop(); break;
    case KernelSpec::Kind::reduce: build_reduce(); break;
    case KernelSpec::Kind::matmul: build_matmul(); break;
    case KernelSpec::Kind::whole: build_whole(); break;
  }
  kernel_.bindings = static_cast<int>(buffers_.size());
  return std::move(kernel_);
}

int KernelBuilder::binding_of(TensorId root) {
  const int buffer = buffer_of_[static_cast<std::size_t>(root)];
  const auto found = std::find(buffers_.begin(), buffers_.end(), buffer);
  if (found != buffers_.end()) return static_cast<int>(found - buffers_.begin());
  buffers_.push_back(buffer);
  return static_cast<int>(buffers_.size()) - 1;
}

int KernelBuilder::add(Instruction instruction) {
  // A repeated instruction is the same value; loads are distinguished by their index.
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(instruction.kind), name(instruction.op),
                  name(instruction.dtype), instruction.a, instruction.b, instruction.c, instruction.index,
                  instruction.number, instruction.number2, instruction.dim.str(), instruction.dim_scale.str());
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  kernel_.body.push_back(std::move(instruction));
  const int value = static_cast<int>(kernel_.body.size()) - 1;
  known_.emplace(key, value);
  return value;
}

int KernelBuilder::constant(double value, DType dtype) {
  Instruction instruction;
  instruction.kind = Instruction::Kind::constant;
  instruction.dtype = dtype;
  instruction.number = value;
  return add(std::move(instruction));
}

int KernelBuilder::dim_constant(const Dim& value) {
  if (value.is_constant()) return constant(static_cast<double>(value.value()), DType::i32);
  Instruction instruction;
  instruction.kind = Instruction::Kind::constant;
  instruction.dtype = DType::i32;
  instruction.dim = value;
  return add(std::move(instruction));
}

int KernelBuilder::position(const AffineIndex& at) {
  if (at.terms.empty()) return dim_constant(at.offset);
  int total = -1;
  for (std::size_t i = 0; i < at.terms.size(); ++i) {
    Instruction instruction;
    instruction.kind = Instruction::Kind::position;
    instruction.dtype = DType::i32;
    instruction.index = at.terms[i].first;
    instruction.dim_scale = at.terms[i].second;
    if (i == 0) instruction.dim = at.offset;
    const int term = add(std::move(instruction));
    total = total < 0 ? term : compute(Op::add, DType::i32, total, term);
  }
  return total;
}

int KernelBuilder::compute(Op op, DType dtype, int a, int b, int c) {
  Instruction instruction;
  instruction.kind = Instruction::Kind::compute;
  instruction.op = op;
  instruction.dtype = dtype;
  instruction.a = a;
  instruction.b = b;
  instruction.c = c;
  return add(std::move(instruction));
}

int KernelBuilder::load(TensorId tensor, const Access& access) {
  const Layout& layout = fusion_.layouts[static_cast<std::size_t>(tensor)];
  Load load;
  load.dtype = graph_.type(tensor).dtype;
  load.map = index_map(access, layout.offset, layout.strides, group_.domain.size());
  load.masks = masks_;
  load.binding = binding_of(layout.root);
  for (std::size_t i = 0; i < kernel_.loads.size(); ++i) {
    const Load& known = kernel_.loads[i];
    const bool same = known.binding == load.binding && known.indirect < 0 && known.map.offset == load.map.offset &&
                      known.map.strides == load.map.strides && known.masks.empty() && load.masks.empty();
    if (!same) continue;
    Instruction instruction;
    instruction.kind = Instruction::Kind::load;
    instruction.dtype = load.dtype;
    instruction.index = static_cast<int>(i);
    return add(std::move(instruction));
  }
  kernel_.loads.push_back(std::move(load));
  Instruction instruction;
  instruction.kind = Instruction::Kind::load;
  instruction.dtype = graph_.type(tensor).dtype;
  instruction.index = static_cast<int>(kernel_.loads.size()) - 1;
  return add(std::move(instruction));
}

int KernelBuilder::read(TensorId tensor, const Access& access) {
  const NodeId from = graph_.tensor(tensor).producer;
  const Node& node = node_at(from);
  if (is_view(node.op)) {
    const NodeId source = graph_.tensor(fusion_.layouts[static_cast<std::size_t>(tensor)].root).producer;
    const bool computed_here = fusion_.group_of[static_cast<std::size_t>(source)] == group_number_;
    if (computed_here || fusion_.inlined[static_cast<std::size_t>(source)])
      return read(node.inputs[0], *view_operand_access(graph_, node, access));
    return load(tensor, access);
  }
  if (fusion_.inlined[static_cast<std::size_t>(from)]) return evaluate(node, access);
  if (const auto found = values_.find(tensor); found != values_.end()) return found->second;
  return load(tensor, access);
}

int KernelBuilder::evaluate(const Node& node, const Access& access) {
  const TensorType& type = graph_.type(node.outputs[0]);
  const auto operand = [&](std::size_t i) {
    return read(node.inputs[i], broadcast_access(access, type.shape, graph_.shape(node.inputs[i])));
  };
  switch (node.op) {
    case Op::const_scalar: return constant(node.as<ConstScalarAttrs>().value, type.dtype);
    case Op::arange: {
      const auto& attrs = node.as<ArangeAttrs>();
      int value = position(access[0]);
      if (type.dtype != DType::i32) value = compute(Op::cast, type.dtype, value);
      if (attrs.step != 1) value = compute(Op::mul, type.dtype, value, constant(attrs.step, type.dtype));
      if (attrs.start != 0) value = compute(Op::add, type.dtype, value, constant(attrs.start, type.dtype));
      return value;
    }
    case Op::random: return evaluate_random(node, access);
    case Op::concat: return evaluate_concat(node, access);
    case Op::pad: return evaluate_pad(node, access);
    case Op::one_hot: {
      const int ids = read(node.inputs[0], Access(access.begin(), access.end() - 1));
      const int at = position(access.back());
      const DType index_type = graph_.type(node.inputs[0]).dtype;
      const int same =
          compute(Op::equal, DType::boolean, index_type == DType::i32 ? at : compute(Op::cast, index_type, at), ids);
      return compute(Op::cast, type.dtype, same);
    }
    case Op::embedding: return evaluate_lookup(node, access, 0, Access(access.begin(), access.end() - 1));
    case Op::take_along_axis:
      return evaluate_lookup(
          node, access, static_cast<std::size_t>(axis_of(node.as<AxisAttrs>().axis, static_cast<int>(access.size()))),
          access);
    case Op::cast: {
      const int value = operand(0);
      return graph_.type(node.inputs[0]).dtype == type.dtype ? value : compute(Op::cast, type.dtype, value);
    }
    default: break;
  }
  Instruction instruction;
  instruction.kind = Instruction::Kind::compute;
  instruction.op = node.op;
  instruction.dtype = type.dtype;
  instruction.a = operand(0);
  if (node.inputs.size() > 1 && node.inputs[1] != no_tensor) instruction.b = operand(1);
  if (node.inputs.size() > 2 && node.inputs[2] != no_tensor) instruction.c = operand(2);
  if (node.op == Op::pow) instruction.number = node.as<PowAttrs>().exponent;
  if (node.op == Op::gelu) instruction.index = static_cast<int>(node.as<GeluAttrs>().approximate);
  if (node.op == Op::clamp) {
    instruction.number = node.as<ClampAttrs>().min;
    instruction.number2 = node.as<ClampAttrs>().max;
  }
  return add(std::move(instruction));
}

namespace {

// The range of the domain's axis in which offset + coefficient * index is in [from, to); only a plain axis has one.
std::optional<Mask> mask_for(const AffineIndex& at, const Dim& from, const Dim& to) {
  if (at.terms.size() != 1 || !(at.terms[0].second == Dim(1))) return std::nullopt;
  return Mask{at.terms[0].first, from - at.offset, to - at.offset};
}

}  // namespace

int KernelBuilder::evaluate_concat(const Node& node, const Access& access) {
  const auto axis = static_cast<std::size_t>(axis_of(node.as<AxisAttrs>().axis, static_cast<int>(access.size())));
  const DType dtype = graph_.type(node.outputs[0]).dtype;
  const int at = position(access[axis]);
  Dim end = graph_.shape(node.outputs[0])[axis];
  int result = -1;
  for (std::size_t i = node.inputs.size(); i-- > 0;) {
    const Dim size = graph_.shape(node.inputs[i])[axis];
    if (size == Dim(0)) continue;
    const Dim start = end - size;
    Access part = access;
    part[axis].offset = part[axis].offset - start;
    const std::size_t masks = masks_.size();
    if (const auto mask = mask_for(access[axis], start, end)) masks_.push_back(*mask);
    const int value = read(node.inputs[i], part);
    masks_.resize(masks);
    result = result < 0
                 ? value
                 : compute(Op::where, dtype, compute(Op::less, DType::boolean, at, dim_constant(end)), value, result);
    end = start;
  }
  return result < 0 ? constant(0, dtype) : result;
}

int KernelBuilder::evaluate_pad(const Node& node, const Access& access) {
  const auto& attrs = node.as<PadAttrs>();
  const Shape& shape = graph_.shape(node.inputs[0]);
  const DType dtype = graph_.type(node.outputs[0]).dtype;
  const auto is_padded = [&](std::size_t i) { return !(attrs.before[i] == Dim(0) && attrs.after[i] == Dim(0)); };
  Access inner = access;
  const std::size_t masks = masks_.size();
  bool all_masked = true;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!is_padded(i)) continue;
    inner[i].offset = inner[i].offset - attrs.before[i];
    const auto mask = mask_for(access[i], attrs.before[i], attrs.before[i] + shape[i]);
    if (mask) masks_.push_back(*mask);
    all_masked &= mask.has_value();
  }
  const std::size_t loads = kernel_.loads.size();
  const int value = read(node.inputs[0], inner);
  const bool outermost = masks == 0;
  masks_.resize(masks);
  const Instruction& read_value = kernel_.body[static_cast<std::size_t>(value)];
  // A plain load supplies the padding itself.
  if (all_masked && outermost && read_value.kind == Instruction::Kind::load &&
      read_value.index == static_cast<int>(loads)) {
    kernel_.loads.back().fill = attrs.value;
    return value;
  }
  int inside = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!is_padded(i)) continue;
    const int at = position(access[i]);
    const int after_start = compute(Op::greater_equal, DType::boolean, at, dim_constant(attrs.before[i]));
    const int before_end = compute(Op::less, DType::boolean, at, dim_constant(attrs.before[i] + shape[i]));
    const int both = compute(Op::logical_and, DType::boolean, after_start, before_end);
    inside = inside < 0 ? both : compute(Op::logical_and, DType::boolean, inside, both);
  }
  return inside < 0 ? value : compute(Op::where, dtype, inside, value, constant(attrs.value, dtype));
}

int KernelBuilder::evaluate_random(const Node& node, const Access& access) {
  const auto& attrs = node.as<RandomAttrs>();
  const Shape& shape = graph_.shape(node.outputs[0]);
  Dim stride(1);
  int linear = -1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    AffineIndex scaled = access[i];
    scaled.offset = scaled.offset * stride;
    for (auto& [axis, coefficient] : scaled.terms) coefficient = coefficient * stride;
    const int term = position(scaled);
    linear = linear < 0 ? term : compute(Op::add, DType::i32, linear, term);
    stride = stride * shape[i];
  }
  if (linear < 0) linear = constant(0, DType::i32);
  Instruction instruction;
  instruction.kind = Instruction::Kind::compute;
  instruction.op = Op::random;
  instruction.dtype = DType::f32;
  instruction.a = linear;
  instruction.b = load(node.inputs[0], {AffineIndex{0, {}}});
  instruction.c = load(node.inputs[0], {AffineIndex{1, {}}});
  instruction.number = attrs.stream;
  instruction.index = static_cast<int>(attrs.distribution);
  return add(std::move(instruction));
}

int KernelBuilder::evaluate_lookup(const Node& node, const Access& access, std::size_t axis,
                                   const Access& index_access) {
  const TensorId table = node.inputs[0];
  const Layout& layout = fusion_.layouts[static_cast<std::size_t>(table)];
  const int at = read(node.inputs[1], index_access);
  // The looked-up axis of the table has no affine index.
  Access rest;
  if (node.op == Op::embedding)
    rest = {AffineIndex{}, access.back()};
  else
    rest = access;
  rest[axis] = AffineIndex{};
  Load load;
  load.dtype = graph_.type(table).dtype;
  load.map = index_map(rest, layout.offset, layout.strides, group_.domain.size());
  load.masks = masks_;
  load.binding = binding_of(layout.root);
  load.indirect = at;
  load.indirect_stride = layout.strides[axis];
  load.indirect_limit = graph_.shape(table)[axis];
  kernel_.loads.push_back(std::move(load));
  Instruction instruction;
  instruction.kind = Instruction::Kind::load;
  instruction.dtype = graph_.type(table).dtype;
  instruction.index = static_cast<int>(kernel_.loads.size()) - 1;
  instruction.a = at;
  return add(std::move(instruction));
}

TensorAccess KernelBuilder::whole_tensor(TensorId tensor) {
  if (tensor == no_tensor) return {};
  const Layout& layout = fusion_.layouts[static_cast<std::size_t>(tensor)];
  return {binding_of(layout.root), graph_.type(tensor).dtype, graph_.shape(tensor), layout.offset, layout.strides};
}

namespace {

// Appends the node's computation to the list; its operand is the last value in it.
void append_to_prologue(const Graph& graph, const Node& node, std::vector<Instruction>& prologue) {
  Instruction instruction;
  instruction.kind = Instruction::Kind::compute;
  instruction.op = node.op;
  instruction.dtype = graph.type(node.outputs[0]).dtype;
  const int last = static_cast<int>(prologue.size()) - 1;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Node& from = graph.producer(node.inputs[i]);
    int value = last;
    if (from.op == Op::const_scalar) {
      Instruction constant;
      constant.dtype = graph.type(node.inputs[i]).dtype;
      constant.number = from.as<ConstScalarAttrs>().value;
      prologue.push_back(std::move(constant));
      value = static_cast<int>(prologue.size()) - 1;
    }
    (i == 0 ? instruction.a : instruction.b) = value;
  }
  if (node.op == Op::clamp) {
    instruction.number = node.as<ClampAttrs>().min;
    instruction.number2 = node.as<ClampAttrs>().max;
  }
  prologue.push_back(std::move(instruction));
}

}  // namespace

TensorAccess KernelBuilder::product_operand(TensorId tensor) {
  const Layout& layout = fusion_.layouts[static_cast<std::size_t>(tensor)];
  TensorAccess access{-1, DType::f32, graph_.shape(tensor), layout.offset, layout.strides};
  // Walks back from the multiplied value to the tensor in memory; the order of elements does not change on the way.
  std::vector<const Node*> chain;
  TensorId root = layout.root;
  while (fusion_.inlined[static_cast<std::size_t>(graph_.tensor(root).producer)]) {
    chain.push_back(&graph_.producer(root));
    const Layout& before = fusion_.layouts[static_cast<std::size_t>(varying_operand(graph_, *chain.back()))];
    access.offset = access.offset + before.offset;
    root = before.root;
  }
  access.binding = binding_of(root);
  access.dtype = graph_.type(root).dtype;
  if (chain.empty()) return access;
  Instruction given;
  given.kind = Instruction::Kind::product;
  given.dtype = access.dtype;
  access.prologue.push_back(std::move(given));
  std::for_each(chain.rbegin(), chain.rend(),
                [&](const Node* node) { append_to_prologue(graph_, *node, access.prologue); });
  return access;
}

void KernelBuilder::store(TensorId tensor, int value, const Access& domain_of_axis) {
  const Layout& layout = fusion_.layouts[static_cast<std::size_t>(tensor)];
  Store store;
  store.binding = binding_of(tensor);
  store.dtype = graph_.type(tensor).dtype;
  store.map = index_map(domain_of_axis, layout.offset, layout.strides, group_.domain.size());
  store.value = value;
  kernel_.stores.push_back(std::move(store));
}

void KernelBuilder::build_loop() {
  for (const NodeId id : group_.nodes) {
    const Node& node = node_at(id);
    const TensorId result = node.outputs[0];
    if (is_reduction(node.op)) {
      Instruction instruction;
      instruction.kind = Instruction::Kind::reduce;
      instruction.op = node.op;
      instruction.dtype = graph_.type(result).dtype;
      instruction.a = read(node.inputs[0], identity_access(graph_.shape(node.inputs[0])));
      values_[result] = add(std::move(instruction));
    } else {
      values_[result] = evaluate(node, identity_access(graph_.shape(result)));
    }
  }
  for (const NodeId id : group_.nodes) {
    const TensorId result = node_at(id).outputs[0];
    if (!fusion_.in_memory[static_cast<std::size_t>(result)]) continue;
    // Whether a reduction keeps its axes or drops them, its values run along the leading axes of the domain.
    store(result, values_.at(result), identity_access(graph_.shape(result)));
  }
}

void KernelBuilder::build_reduce() {
  const Node& node = node_at(group_.nodes.front());
  const Shape& shape = graph_.shape(node.inputs[0]);
  const auto reduced = reduced_axes(graph_, node);
  const auto is_reduced = [&](std::size_t axis) {
    return std::find(reduced.begin(), reduced.end(), static_cast<int>(axis)) != reduced.end();
  };
  // The domain is the operand's shape with the reduced axes moved to the end.
  std::vector<int> place(shape.size(), 0);
  int next = 0;
  kernel_.domain.clear();
  for (const bool wanted : {false, true})
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (is_reduced(axis) == wanted) {
        place[axis] = next++;
        kernel_.domain.push_back(shape[axis]);
      }
  Access operand, result;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) operand.push_back(AffineIndex::axis(place[axis]));
  const TensorId output = node.outputs[0];
  const bool kept = graph_.shape(output).size() == shape.size() && !reduced.empty();
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (is_reduced(axis) && !kept) continue;
    result.push_back(is_reduced(axis) ? AffineIndex{} : AffineIndex::axis(place[axis]));
  }
  kernel_.row_axes = static_cast<int>(reduced.size());
  Instruction reduction;
  reduction.kind = Instruction::Kind::reduce;
  reduction.op = node.op;
  reduction.dtype = graph_.type(output).dtype;
  reduction.a = read(node.inputs[0], operand);
  values_[output] = add(std::move(reduction));
  for (std::size_t i = 1; i < group_.nodes.size(); ++i) {
    const Node& after = node_at(group_.nodes[i]);
    values_[after.outputs[0]] = evaluate(after, result);
  }
  for (const NodeId id : group_.nodes) {
    const TensorId value = node_at(id).outputs[0];
    if (fusion_.in_memory[static_cast<std::size_t>(value)]) store(value, values_.at(value), result);
  }
}

// Engines read a quantised weight from its first block, with the scales and minimums in the same order.
void KernelBuilder::refuse_parts_of_quantised(const Node& node, std::size_t weight) const {
  for (std::size_t i = weight; i < weight + 3; ++i) {
    const TensorId id = node.inputs[i];
    if (id == no_tensor || is_whole_view(graph_, id, fusion_.layouts[static_cast<std::size_t>(id)])) continue;
    throw UsageError(
        fmt::format("{}: {} is a slice or another view of a tensor, which a quantised weight cannot be; "
                    "quantise that part separately{}",
                    name(node.op), info(node.op).operands[i].name, node.site.empty() ? "" : " (" + node.site + ")"));
  }
}

void KernelBuilder::build_matmul() {
  const Node& product = node_at(group_.nodes.front());
  kernel_.op = product.op;
  const bool quantised = product.op == Op::matmul_quantised;
  const MatmulAttrs attrs = quantised ? MatmulAttrs{.transpose_b = true} : product.as<MatmulAttrs>();
  // Both operands as [batch …, rows or inner, inner or columns], the batch broadcast to the result's.
  for (std::size_t i = 0; i < 2; ++i) {
    TensorAccess operand = product_operand(product.inputs[i]);
    const std::size_t rank = operand.shape.size();
    if (i == 0 ? attrs.transpose_a : attrs.transpose_b) {
      std::swap(operand.shape[rank - 1], operand.shape[rank - 2]);
      std::swap(operand.strides[rank - 1], operand.strides[rank - 2]);
    }
    const std::size_t batch = group_.domain.size() - 2;
    TensorAccess full = operand;
    full.shape.assign(group_.domain.begin(), group_.domain.begin() + static_cast<std::ptrdiff_t>(batch));
    full.strides.assign(batch, Dim(0));
    for (std::size_t axis = 0; axis + 2 < rank; ++axis)
      if (!(operand.shape[axis] == Dim(1))) full.strides[axis + batch + 2 - rank] = operand.strides[axis];
    full.shape.insert(full.shape.end(), operand.shape.end() - 2, operand.shape.end());
    full.strides.insert(full.strides.end(), operand.strides.end() - 2, operand.strides.end());
    kernel_.operands.push_back(std::move(full));
  }
  if (quantised) {
    refuse_parts_of_quantised(product, 1);
    kernel_.operands.push_back(whole_tensor(product.inputs[2]));
    if (product.inputs[3] != no_tensor) kernel_.operands.push_back(whole_tensor(product.inputs[3]));
  }
  Instruction instruction;
  instruction.kind = Instruction::Kind::product;
  instruction.dtype = graph_.type(product.outputs[0]).dtype;
  values_[product.outputs[0]] = add(std::move(instruction));
  for (std::size_t i = 1; i < group_.nodes.size(); ++i) {
    const Node& node = node_at(group_.nodes[i]);
    values_[node.outputs[0]] = evaluate(node, identity_access(graph_.shape(node.outputs[0])));
  }
  for (const NodeId id : group_.nodes) {
    const TensorId result = node_at(id).outputs[0];
    if (fusion_.in_memory[static_cast<std::size_t>(result)])
      store(result, values_.at(result), identity_access(group_.domain));
  }
}

void KernelBuilder::build_whole() {
  const Node& node = node_at(group_.nodes.front());
  if (const auto weight = quantised_operand(node.op)) refuse_parts_of_quantised(node, *weight);
  kernel_.op = node.op;
  kernel_.attrs = node.attrs;
  for (const TensorId input : node.inputs) kernel_.operands.push_back(whole_tensor(input));
  for (const TensorId output : node.outputs) kernel_.results.push_back(whole_tensor(output));
}

}  // namespace jerboa::detail
