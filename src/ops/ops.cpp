#include <cmath>
#include <fmt/format.h>

#include <jerboa/ir/shapes.h>
#include <jerboa/ops/ops.h>
#include <jerboa/ops/reserved_state.h>

namespace jerboa {
namespace {

std::string site_of(const std::vector<Operand>& operands) {
  for (const Operand& operand : operands)
    if (operand.site().line > 0) return detail::site_text(operand.site());
  return detail::site_text({});
}

std::string site_of(const char* file, int line) { return detail::site_text({file, line}); }

std::string in_parentheses(const std::string& site) { return site.empty() ? "" : " (" + site + ")"; }

// The id of an operand in the traced graph; a number becomes a const_scalar of the given type. Throws GraphError that
// names `what` for a tensor that is empty, belongs to another graph, or was made by a trace that failed.
TensorId id_of(const Operand& operand, const Graph& graph, std::string_view what, const std::string& site,
               DType number_type = DType::f32) {
  const auto fail = [&](const char* problem) {
    throw GraphError(fmt::format("{}{}: an operand {}{}", detail::module_prefix(), detail::called(what), problem,
                                 in_parentheses(site)));
  };
  const Tensor tensor = operand.tensor(number_type);
  if (!tensor) fail("is empty");
  if (tensor.graph() != graph.identity()) fail("belongs to another graph, not the one being traced");
  if (tensor.id() >= static_cast<TensorId>(graph.tensors.size())) fail("is not in the graph: its trace failed");
  return tensor.id();
}

// Rewrites an error of an op, "add: …", to name the op that the user called, prefixed with the module.
std::string in_context(Op op, std::string error) {
  if (error.starts_with(name(op))) error.replace(0, name(op).size(), detail::called(name(op)));
  return detail::module_prefix() + error;
}

std::vector<TensorId> add_node(Graph& graph, Op op, std::vector<TensorId> inputs, Attrs attrs,
                               const std::string& site) {
  try {
    return graph.add_node(op, std::move(inputs), std::move(attrs), site);
  } catch (const ShapeError& error) {
    throw ShapeError(in_context(op, error.what()));
  } catch (const GraphError& error) {
    throw GraphError(in_context(op, error.what()) + in_parentheses(site));
  }
}

Tensor one(Op op, const std::vector<Operand>& operands, Attrs attrs = NoAttrs{}) {
  return apply(op, operands, std::move(attrs)).front();
}

Tensor leaf(Op op, const std::string& name, const TensorType& type, Storage storage, const CallSite& at) {
  const std::string site = detail::site_text(at);
  Graph& graph = current_graph(jerboa::name(op), at);
  if (name.empty()) throw GraphError(fmt::format("{}: a name is required{}", jerboa::name(op), in_parentheses(site)));
  if (const TensorId holder = graph.find(name);
      holder != no_tensor && graph.tensor(holder).storage != Storage::activation)
    throw GraphError(fmt::format("{}: the name {} is taken{}", jerboa::name(op), name, in_parentheses(site)));
  for (const Dim& dim : type.shape)
    if (dim.lower_bound() < 0)
      throw ShapeError(fmt::format("{} {}: {} has a negative size{}", jerboa::name(op), name, to_string(type.shape),
                                   in_parentheses(site)));
  const TensorId id = graph.add_node(op, {}, NoAttrs{}, site, &type, storage).front();
  graph.rename(id, name);
  return {graph.identity(), id};
}

void refuse_reserved(Op op, const std::string& name, const CallSite& at) {
  if (const std::string why = detail::why_reserved(name); !why.empty())
    throw GraphError(fmt::format("{}{}: the name {} is reserved: {}; choose another{}", detail::module_prefix(),
                                 jerboa::name(op), name, why, in_parentheses(detail::site_text(at))));
}

}  // namespace

std::vector<Tensor> apply(Op op, const std::vector<Operand>& operands, Attrs attrs) {
  const std::string site = site_of(operands);
  CallSite first;
  for (const Operand& operand : operands)
    if (first.line == 0) first = operand.site();
  Graph& graph = current_graph(name(op), first);
  // A condition does not determine the type of a number next to it.
  DType number_type = DType::f32;
  const auto& slots = info(op).operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_number() || operands[i].is_absent()) continue;
    if (i < slots.size() && slots[i].kind == OperandInfo::Kind::boolean && op == Op::where) continue;
    number_type = graph.type(id_of(operands[i], graph, name(op), site)).dtype;
    break;
  }
  std::vector<TensorId> inputs;
  for (const Operand& operand : operands) {
    if (operand.is_absent()) {
      inputs.push_back(no_tensor);
      continue;
    }
    inputs.push_back(id_of(operand, graph, name(op), site, number_type));
  }
  std::vector<Tensor> outputs;
  for (const TensorId id : add_node(graph, op, std::move(inputs), std::move(attrs), site))
    outputs.emplace_back(graph.identity(), id);
  return outputs;
}

// Leaves

Tensor param_input(const std::string& name, Shape shape, ParamOptions options, const char* file, int line) {
  refuse_reserved(Op::param_input, name, {file, line});
  const Tensor result = leaf(Op::param_input, name, {options.dtype, std::move(shape)}, Storage::param, {file, line});
  TensorInfo& info = current_graph("param_input").tensor(result.id());
  info.init = options.init;
  info.trainable = options.trainable;
  info.decay = options.decay;
  info.tied_to = std::move(options.tied_to);
  return result;
}

Tensor tensor_input(const std::string& name, Shape shape, DType dtype, const char* file, int line) {
  return leaf(Op::tensor_input, name, {dtype, std::move(shape)}, Storage::input, {file, line});
}

Tensor state_input(const std::string& name, Shape shape, DType dtype, Init init, const char* file, int line) {
  if (name != random_state) refuse_reserved(Op::state_input, name, {file, line});  // random() takes that one as its key
  return detail::reserved_state(name, std::move(shape), dtype, init, {file, line});
}

Tensor detail::reserved_state(const std::string& name, Shape shape, DType dtype, Init init, const CallSite& site) {
  const Tensor result = leaf(Op::state_input, name, {dtype, std::move(shape)}, Storage::state, site);
  current_graph("state_input").tensor(result.id()).init = init;
  return result;
}

Tensor scalar(double value, DType dtype, const char* file, int line) {
  Graph& graph = current_graph("scalar", {file, line});
  return {graph.identity(),
          graph.add_node(Op::const_scalar, {}, ConstScalarAttrs{value, dtype}, site_of(file, line)).front()};
}

Tensor constant(HostTensor values, const char* file, int line) {
  Graph& graph = current_graph("constant", {file, line});
  const TensorType type{values.dtype(), to_shape(values.shape())};
  graph.constants.push_back(std::move(values));
  const ConstantAttrs attrs{static_cast<int>(graph.constants.size()) - 1};
  return {graph.identity(),
          graph.add_node(Op::constant, {}, attrs, site_of(file, line), &type, Storage::constant).front()};
}

Tensor full(Shape shape, double value, DType dtype, const char* file, int line) {
  const SiteScope scope(CallSite{file, line}, "full");
  return broadcast_to(scalar(value, dtype), std::move(shape));
}
Tensor zeros(Shape shape, DType dtype, const char* file, int line) {
  const SiteScope scope(CallSite{file, line}, "zeros");
  return full(std::move(shape), 0, dtype, file, line);
}
Tensor zeros_like(Operand x) {
  const SiteScope scope(x.site(), "zeros_like");
  return zeros(x.tensor().shape(), x.tensor().dtype());
}

Tensor arange(Dim length, DType dtype, const char* file, int line) {
  const SiteScope scope(CallSite{file, line});
  current_graph("arange", {file, line});
  return one(Op::arange, {}, ArangeAttrs{std::move(length), 0, 1, dtype});
}

Tensor random(Operand key, Shape shape, Distribution distribution, int stream) {
  return one(Op::random, {key}, RandomAttrs{std::move(shape), distribution, stream});
}

namespace {

Tensor random_of(Shape shape, Distribution distribution, const char* file, int line) {
  Graph& graph = current_graph("random", {file, line});
  TensorId key = graph.find(random_state);
  if (key == no_tensor) {
    const Tensor state = state_input(random_state, {2}, DType::u32, Init::zeros(), file, line);
    key = state.id();
    HostTensor step(DType::u32, {2});
    step.set_number(1, 1);
    update(state, state + constant(std::move(step), file, line));
  }
  int stream = 0;
  for (const Node& node : graph.nodes) stream += node.op == Op::random ? 1 : 0;
  return random(Tensor(graph.identity(), key), std::move(shape), distribution, stream);
}

}  // namespace

Tensor random_uniform(Shape shape, const char* file, int line) {
  const SiteScope scope(CallSite{file, line}, "random_uniform");
  return random_of(std::move(shape), Distribution::uniform, file, line);
}
Tensor random_normal(Shape shape, const char* file, int line) {
  const SiteScope scope(CallSite{file, line}, "random_normal");
  return random_of(std::move(shape), Distribution::normal, file, line);
}

// What the graph returns and keeps

void output(const std::string& name, Operand x) {
  Graph& graph = current_graph("output", x.site());
  const std::string site = site_of({x});
  for (const auto& existing : graph.outputs)
    if (existing.name == name)
      throw GraphError(fmt::format("output: the name {} is taken{}", name, in_parentheses(site)));
  graph.outputs.push_back({name, id_of(x, graph, "output " + name, site)});
}

Tensor capture(Operand x, const std::string& name) {
  Graph& graph = current_graph("capture", x.site());
  std::string free = name;
  const auto taken = [&] {
    for (const auto& existing : graph.captures)
      if (existing.name == free) return true;
    return false;
  };
  for (int number = 1; taken(); ++number) free = fmt::format("{}.{}", name, number);
  const TensorId id = id_of(x, graph, "capture " + name, site_of({x}));
  graph.captures.push_back({free, id});
  return {graph.identity(), id};
}

void update(Operand target, Operand value) {
  Graph& graph = current_graph("update", target.site());
  const std::string site = site_of({target, value});
  const TensorId old = id_of(target, graph, "update", site);
  const TensorId next = id_of(value, graph, "update", site, graph.type(old).dtype);
  const TensorInfo& info = graph.tensor(old);
  if (info.storage != Storage::param && info.storage != Storage::state)
    throw GraphError(fmt::format("update: {} is neither a parameter nor a state{}", info.name, in_parentheses(site)));
  if (!info.tied_to.empty())
    throw GraphError(fmt::format("update: {} is tied to {}, so update that instead{}", info.name, info.tied_to,
                                 in_parentheses(site)));
  if (graph.type(next) != info.type)
    throw ShapeError(fmt::format("update: {} is {} but the new value is {}{}", info.name, to_string(info.type),
                                 to_string(graph.type(next)), in_parentheses(site)));
  for (const Update& existing : graph.updates)
    if (existing.target == old)
      throw GraphError(fmt::format("update: {} is updated twice in one graph{}", info.name, in_parentheses(site)));
  graph.updates.push_back({old, next});
}

// Element-wise

Tensor neg(Operand x) { return one(Op::neg, {x}); }
Tensor abs(Operand x) { return one(Op::abs, {x}); }
Tensor sqrt(Operand x) { return one(Op::sqrt, {x}); }
Tensor rsqrt(Operand x) { return one(Op::rsqrt, {x}); }
Tensor log(Operand x) { return one(Op::log, {x}); }
Tensor exp(Operand x) { return one(Op::exp, {x}); }
Tensor expm1(Operand x) { return one(Op::expm1, {x}); }
Tensor sin(Operand x) { return one(Op::sin, {x}); }
Tensor cos(Operand x) { return one(Op::cos, {x}); }
Tensor tanh(Operand x) { return one(Op::tanh, {x}); }
Tensor sigmoid(Operand x) { return one(Op::sigmoid, {x}); }
Tensor erf(Operand x) { return one(Op::erf, {x}); }
Tensor relu(Operand x) { return one(Op::relu, {x}); }
Tensor silu(Operand x) { return one(Op::silu, {x}); }
Tensor gelu(Operand x, GeluForm approximate) { return one(Op::gelu, {x}, GeluAttrs{approximate}); }
Tensor softplus(Operand x) { return one(Op::softplus, {x}); }
Tensor floor(Operand x) { return one(Op::floor, {x}); }
Tensor round(Operand x) { return one(Op::round, {x}); }
Tensor square(Operand x) {
  const SiteScope scope(x.site(), "square");
  return mul(x, x);
}
Tensor clamp(Operand x, double min, double max) { return one(Op::clamp, {x}, ClampAttrs{min, max}); }
Tensor cast(Operand x, DType dtype) {
  const SiteScope scope(x.site(), "cast");
  if (!x.is_number() && !x.is_absent() && x.tensor().dtype() == dtype) return x.tensor();
  return one(Op::cast, {x}, CastAttrs{dtype});
}
Tensor stop_gradient(Operand x) { return one(Op::stop_gradient, {x}); }
Tensor logical_not(Operand x) { return one(Op::logical_not, {x}); }
Tensor bit_not(Operand x) { return one(Op::bit_not, {x}); }

Tensor add(Operand a, Operand b) { return one(Op::add, {a, b}); }
Tensor sub(Operand a, Operand b) { return one(Op::sub, {a, b}); }
Tensor mul(Operand a, Operand b) { return one(Op::mul, {a, b}); }
Tensor div(Operand a, Operand b) { return one(Op::div, {a, b}); }
Tensor pow(Operand a, Operand b) {
  if (b.is_number() && !a.is_number()) return one(Op::pow, {a, {}}, PowAttrs{b.number()});
  return one(Op::pow, {a, b}, PowAttrs{});
}
Tensor maximum(Operand a, Operand b) { return one(Op::maximum, {a, b}); }
Tensor minimum(Operand a, Operand b) { return one(Op::minimum, {a, b}); }
Tensor mod(Operand a, Operand b) { return one(Op::mod, {a, b}); }
Tensor equal(Operand a, Operand b) { return one(Op::equal, {a, b}); }
Tensor not_equal(Operand a, Operand b) { return one(Op::not_equal, {a, b}); }
Tensor less(Operand a, Operand b) { return one(Op::less, {a, b}); }
Tensor less_equal(Operand a, Operand b) { return one(Op::less_equal, {a, b}); }
Tensor greater(Operand a, Operand b) { return one(Op::greater, {a, b}); }
Tensor greater_equal(Operand a, Operand b) { return one(Op::greater_equal, {a, b}); }
Tensor logical_and(Operand a, Operand b) { return one(Op::logical_and, {a, b}); }
Tensor logical_or(Operand a, Operand b) { return one(Op::logical_or, {a, b}); }
Tensor bit_and(Operand a, Operand b) { return one(Op::bit_and, {a, b}); }
Tensor bit_or(Operand a, Operand b) { return one(Op::bit_or, {a, b}); }
Tensor bit_xor(Operand a, Operand b) { return one(Op::bit_xor, {a, b}); }
Tensor shift_left(Operand a, Operand b) { return one(Op::shift_left, {a, b}); }
Tensor shift_right(Operand a, Operand b) { return one(Op::shift_right, {a, b}); }
Tensor where(Operand condition, Operand a, Operand b) { return one(Op::where, {condition, a, b}); }

// Reductions, scans and sorts

Tensor sum(Operand x, Axes axes, bool keepdims) { return one(Op::sum, {x}, ReduceAttrs{std::move(axes), keepdims}); }
Tensor mean(Operand x, Axes axes, bool keepdims) { return one(Op::mean, {x}, ReduceAttrs{std::move(axes), keepdims}); }
Tensor max(Operand x, Axes axes, bool keepdims) { return one(Op::max, {x}, ReduceAttrs{std::move(axes), keepdims}); }
Tensor min(Operand x, Axes axes, bool keepdims) { return one(Op::min, {x}, ReduceAttrs{std::move(axes), keepdims}); }
Tensor argmax(Operand x, int axis, bool keepdims) { return one(Op::argmax, {x}, ArgmaxAttrs{axis, keepdims}); }
Tensor all_finite(Operand x) { return one(Op::all_finite, {x}); }
Tensor sum_squares(const std::vector<Operand>& tensors) { return one(Op::sum_squares, tensors); }
Tensor cumsum(Operand x, int axis, bool reverse) { return one(Op::cumsum, {x}, CumsumAttrs{axis, reverse}); }
CumMax cummax(Operand x, int axis, bool reverse) {
  const auto parts = apply(Op::cummax, {x}, CumsumAttrs{axis, reverse});
  return {parts[0], parts[1]};
}
TopK top_k(Operand x, int k, int axis) {
  const auto parts = apply(Op::top_k, {x}, TopKAttrs{k, axis});
  return {parts[0], parts[1]};
}
Tensor argsort(Operand x, int axis, bool descending) { return one(Op::argsort, {x}, ArgsortAttrs{axis, descending}); }

// Shape

Tensor reshape(Operand x, Shape shape) { return one(Op::reshape, {x}, ShapeAttrs{std::move(shape)}); }
Tensor transpose(Operand x, std::vector<int> perm) { return one(Op::transpose, {x}, TransposeAttrs{std::move(perm)}); }
Tensor swap_axes(Operand x, int a, int b) { return one(Op::swap_axes, {x}, SwapAxesAttrs{a, b}); }
Tensor squeeze(Operand x, Axes axes) { return one(Op::squeeze, {x}, AxesAttrs{std::move(axes)}); }
Tensor unsqueeze(Operand x, Axes axes) { return one(Op::unsqueeze, {x}, AxesAttrs{std::move(axes)}); }
Tensor broadcast_to(Operand x, Shape shape) {
  const SiteScope scope(x.site(), "broadcast_to");
  if (!x.is_number() && x.tensor().shape() == shape) return x.tensor();
  return one(Op::broadcast_to, {x}, ShapeAttrs{std::move(shape)});
}
Tensor sum_to_shape(Operand x, Shape shape) {
  const SiteScope scope(x.site(), "sum_to_shape");
  if (x.tensor().shape() == shape) return x.tensor();
  return one(Op::sum_to_shape, {x}, ShapeAttrs{std::move(shape)});
}
Tensor slice(Operand x, int axis, Dim start, Dim end, std::int64_t step) {
  return one(Op::slice, {x}, SliceAttrs{axis, std::move(start), std::move(end), step});
}
Tensor concat(const std::vector<Operand>& parts, int axis) { return one(Op::concat, parts, AxisAttrs{axis}); }
std::vector<Tensor> split(Operand x, Shape sizes, int axis) {
  return apply(Op::split, {x}, SplitAttrs{axis, std::move(sizes)});
}
Tensor pad(Operand x, Shape before, Shape after, double value) {
  return one(Op::pad, {x}, PadAttrs{std::move(before), std::move(after), value});
}

std::vector<Tensor> detail::split_equal(Operand x, std::size_t parts, int axis) {
  const SiteScope scope(x.site(), "split");
  const Dim size = x.tensor().dim(axis);
  const auto part = divide_exactly(size, Dim(static_cast<std::int64_t>(parts)));
  if (!part)
    throw ShapeError(fmt::format("split: axis {} of {} does not divide into {} equal parts{}", axis,
                                 to_string(x.tensor().shape()), parts, in_parentheses(site_of({x}))));
  return split(x, Shape(parts, *part), axis);
}

// Indexing

Tensor embedding(Operand table, Operand ids) { return one(Op::embedding, {table, ids}); }
Tensor embedding_quantised(Operand weight, Operand scales, Operand mins, Operand ids) {
  return one(Op::embedding_quantised, {weight, scales, mins, ids});
}
Tensor embedding_grad(Operand ids, Operand dy, Dim rows) {
  return one(Op::embedding_grad, {ids, dy}, EmbeddingGradAttrs{std::move(rows)});
}
Tensor take_along_axis(Operand x, Operand indices, int axis) {
  return one(Op::take_along_axis, {x, indices}, AxisAttrs{axis});
}
Tensor scatter(Operand x, Operand indices, Operand updates, int axis) {
  return one(Op::scatter, {x, indices, updates}, AxisAttrs{axis});
}
Tensor scatter_add(Operand x, Operand indices, Operand updates, int axis) {
  return one(Op::scatter_add, {x, indices, updates}, AxisAttrs{axis});
}
Tensor one_hot(Operand ids, Dim depth, DType dtype) {
  return one(Op::one_hot, {ids}, OneHotAttrs{std::move(depth), dtype});
}

// Linear algebra

Tensor matmul(Operand a, Operand b, MatmulAttrs attrs) { return one(Op::matmul, {a, b}, attrs); }
Tensor matmul_quantised(Operand x, Operand weight, Operand scales, Operand mins) {
  return one(Op::matmul_quantised, {x, weight, scales, mins});
}
Tensor dequantise(Operand weight, Operand scales, Operand mins) { return one(Op::dequantise, {weight, scales, mins}); }
Tensor matmul_grouped(Operand x, Operand w, Operand offsets, GroupedAttrs attrs) {
  return one(Op::matmul_grouped, {x, w, offsets}, attrs);
}
Tensor matmul_grouped_quantised(Operand x, Operand weight, Operand scales, Operand mins, Operand offsets) {
  return one(Op::matmul_grouped_quantised, {x, weight, scales, mins, offsets});
}
Tensor matmul_grouped_weight_grad(Operand x, Operand dy, Operand offsets) {
  return one(Op::matmul_grouped_weight_grad, {x, dy, offsets});
}
Tensor conv1d(Operand x, Operand weight, Operand bias, Conv1dAttrs attrs) {
  return one(Op::conv1d, {x, weight, bias}, attrs);
}
Tensor conv2d(Operand x, Operand weight, Operand bias, Conv2dAttrs attrs) {
  return one(Op::conv2d, {x, weight, bias}, std::move(attrs));
}
Tensor conv2d_input_grad(Operand dy, Operand weight, Conv2dGradAttrs attrs) {
  return one(Op::conv2d_input_grad, {dy, weight}, std::move(attrs));
}
Tensor conv2d_weight_grad(Operand x, Operand dy, Conv2dGradAttrs attrs) {
  return one(Op::conv2d_weight_grad, {x, dy}, std::move(attrs));
}
Tensor max_pool2d(Operand x, PoolAttrs attrs) { return one(Op::max_pool2d, {x}, std::move(attrs)); }
Tensor max_pool2d_grad(Operand x, Operand dy, PoolGradAttrs attrs) {
  return one(Op::max_pool2d_grad, {x, dy}, std::move(attrs));
}
Tensor avg_pool2d(Operand x, PoolAttrs attrs) { return one(Op::avg_pool2d, {x}, std::move(attrs)); }
Tensor avg_pool2d_grad(Operand dy, PoolGradAttrs attrs) { return one(Op::avg_pool2d_grad, {dy}, std::move(attrs)); }

// Blocks

Tensor softmax(Operand x, int axis) { return one(Op::softmax, {x}, AxisAttrs{axis}); }
Tensor log_softmax(Operand x, int axis) { return one(Op::log_softmax, {x}, AxisAttrs{axis}); }
Tensor where_causal(Operand x, double fill) { return one(Op::where_causal, {x}, FillAttrs{fill}); }
Tensor causal_softmax(Operand x) { return one(Op::causal_softmax, {x}); }
Tensor layer_norm(Operand x, Operand weight, Operand bias, double eps) {
  return one(Op::layer_norm, {x, weight, bias}, EpsAttrs{eps});
}
Tensor rms_norm(Operand x, Operand weight, double eps) { return one(Op::rms_norm, {x, weight}, EpsAttrs{eps}); }
Tensor rope(Operand x, Operand positions, RopeAttrs attrs) { return one(Op::rope, {x, positions}, attrs); }
Tensor swiglu(Operand a, Operand b) { return one(Op::swiglu, {a, b}); }
Tensor geglu(Operand a, Operand b, GeluForm approximate) { return one(Op::geglu, {a, b}, GeluAttrs{approximate}); }
Tensor cross_entropy(Operand logits, Operand targets, CrossEntropyOptions options) {
  return one(Op::cross_entropy, {logits, targets, options.mask ? Operand(options.mask) : Operand()},
             CrossEntropyAttrs{options.label_smoothing});
}

Tensor split_heads(Operand x, int heads) {
  const SiteScope scope(x.site(), "split_heads");
  const Tensor tensor = x.tensor();
  const auto size = heads > 0 ? divide_exactly(tensor.dim(-1), Dim(heads)) : std::nullopt;
  if (tensor.rank() != 3 || !size)
    throw ShapeError(fmt::format("split_heads: {} does not split into {} heads of [batch, time, heads * size]{}",
                                 to_string(tensor.shape()), heads, in_parentheses(site_of({x}))));
  return transpose(reshape(tensor, {tensor.dim(0), tensor.dim(1), heads, *size}), {0, 2, 1, 3});
}

Tensor merge_heads(Operand x) {
  const SiteScope scope(x.site(), "merge_heads");
  const Tensor tensor = x.tensor();
  if (tensor.rank() != 4)
    throw ShapeError(fmt::format("merge_heads: {} is not [batch, heads, time, size]{}", to_string(tensor.shape()),
                                 in_parentheses(site_of({x}))));
  return reshape(transpose(tensor, {0, 2, 1, 3}), {tensor.dim(0), tensor.dim(2), tensor.dim(1) * tensor.dim(3)});
}

namespace {

Operand maybe(const Tensor& tensor) { return tensor ? Operand(tensor) : Operand(); }

AttentionAttrs attention_attrs(const AttentionOptions& options, const Dim& head_size) {
  AttentionAttrs attrs{options.scale, options.causal, options.window, options.soft_cap, options.ring};
  if (attrs.scale == 0 && head_size.is_constant()) attrs.scale = 1 / std::sqrt(static_cast<double>(head_size.value()));
  return attrs;
}

}  // namespace

Tensor attention(Operand q, Operand k, Operand v, const AttentionOptions& options) {
  const SiteScope scope(q.site(), "attention");
  if (options.heads == 0) {
    if (!options.capture.empty()) capture(attention_weights(q, k, options), options.capture);
    return one(Op::attention,
               {q, k, v, maybe(options.mask), maybe(options.sinks), maybe(options.lengths), maybe(options.positions),
                maybe(options.table)},
               attention_attrs(options, q.tensor().dim(-1)));
  }
  AttentionOptions inner = options;
  inner.heads = 0;
  const int kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
  // Separate statements: the evaluation order of arguments must not decide the graph.
  const Tensor queries = split_heads(q, options.heads);
  const Tensor keys = split_heads(k, kv_heads);
  const Tensor values = split_heads(v, kv_heads);
  return merge_heads(attention(queries, keys, values, inner));
}

Tensor attention_weights(Operand q, Operand k, const AttentionOptions& options) {
  const SiteScope scope(q.site(), "attention_weights");
  if (options.heads > 0) {
    AttentionOptions inner = options;
    inner.heads = 0;
    const int kv_heads = options.kv_heads == 0 ? options.heads : options.kv_heads;
    const Tensor queries = split_heads(q, options.heads);
    return attention_weights(queries, split_heads(k, kv_heads), inner);
  }
  return one(Op::attention_weights,
             {q, k, maybe(options.mask), maybe(options.sinks), maybe(options.lengths), maybe(options.positions),
              maybe(options.table)},
             attention_attrs(options, q.tensor().dim(-1)));
}

// State

Recurrent causal_conv1d(Operand x, Operand weight, const RecurrentOptions& options) {
  const SiteScope scope(x.site());
  const auto parts = apply(
      Op::causal_conv1d, {maybe(options.state), x, weight, maybe(options.positions), maybe(options.slots)}, NoAttrs{});
  return {parts[1], parts[0]};
}

Recurrent linear_attention(Operand q, Operand k, Operand v, Operand log_decay, Operand beta,
                           const RecurrentOptions& options) {
  const SiteScope scope(q.site());
  const auto parts = apply(
      Op::linear_attention,
      {maybe(options.state), q, k, v, log_decay, beta, maybe(options.positions), maybe(options.slots)}, NoAttrs{});
  return {parts[1], parts[0]};
}

Tensor cache_append(Operand cache, Operand values, Operand positions, const CacheAppendOptions& options) {
  return one(Op::cache_append, {cache, values, positions, maybe(options.table)}, CacheAppendAttrs{options.ring});
}
AdamUpdate adam_update(Operand param, Operand grad, Operand m, Operand v, Operand lr, Operand step, AdamAttrs attrs) {
  const auto parts = apply(Op::adam_update, {param, grad, m, v, lr, step}, attrs);
  return {parts[0], parts[1], parts[2]};
}
SgdUpdate sgd_update(Operand param, Operand grad, Operand lr, Operand velocity, SgdAttrs attrs) {
  const auto parts = apply(Op::sgd_update, {param, grad, lr, velocity}, attrs);
  return {parts[0], parts.size() > 1 ? parts[1] : Tensor()};
}

}  // namespace jerboa
