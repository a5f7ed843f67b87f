#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "c_api/graph_builder.h"
#include "ir/attr_json.h"

namespace jerboa::c_api {
namespace {

using Results = std::vector<Tensor>;

std::string name_of(GraphCall& call) {
  std::string name = call.options().text("name", "");
  if (name.empty()) throw UsageError(call.function() + ": a name is required");
  return name;
}

Init init_of(GraphCall& call) {
  Fields fields(call.options().value("init"), call.function() + ": init");
  Init init;
  constexpr auto names = enum_names(Init::Kind{});
  init.kind = static_cast<Init::Kind>(fields.choice("kind", {names.begin(), names.end()}, 0));
  init.mean = fields.number("mean", 0);
  init.width = fields.number("width", 0);
  fields.finish();
  return init;
}

void declare_symbols(GraphCall& call) {
  const nlohmann::json& symbols = call.options().value("symbols");
  Fields bounds(symbols, call.function() + ": symbols");
  if (symbols.is_null()) return;
  for (const auto& item : symbols.items()) {
    const std::int64_t bound = bounds.integer(item.key().c_str(), 1, 1);
    const auto [known, is_new] = call.builder().symbols.emplace(item.key(), bound);
    if (!is_new && known->second != bound)
      throw UsageError(fmt::format("{}: the symbol {} is at most {} in this graph, not {}", call.function(), item.key(),
                                   known->second, bound));
  }
}

Results input(GraphCall& call) {
  declare_symbols(call);
  const Shape shape = call.shape("shape");
  return {tensor_input(name_of(call), shape, call.dtype(DType::f32))};
}

Results parameter(GraphCall& call) {
  Parameter parameter;
  parameter.path = name_of(call);
  parameter.shape = call.shape("shape");
  parameter.dtype = call.dtype(DType::f32);
  parameter.init = init_of(call);
  parameter.trainable = call.options().flag("trainable", true);
  parameter.decay = call.options().flag("decay", true);
  return {Operand(parameter).tensor()};
}

Results state(GraphCall& call) {
  const Shape shape = call.shape("shape");
  const Init init = init_of(call);
  return {state_input(name_of(call), shape, call.dtype(DType::f32), init)};
}

Results constant_values(GraphCall& call) {
  Sizes sizes;
  for (const Dim& dim : call.shape("shape")) {
    if (!dim.is_constant()) throw UsageError("constant: its sizes are numbers");
    sizes.push_back(dim.value());
  }
  const nlohmann::json& values = call.options().value("values");
  const Shape shape(sizes.begin(), sizes.end());
  if (!values.is_array() || element_count(shape).value() != static_cast<std::int64_t>(values.size()))
    throw UsageError(fmt::format("constant: values must be as many numbers as {} has", to_string(shape)));
  HostTensor tensor(call.dtype(DType::f32), sizes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = detail::number_from(values[i]);
    if (!number) throw UsageError(fmt::format("constant: {} is not a number", values[i].dump()));
    tensor.set_number(static_cast<std::int64_t>(i), *number);
  }
  return {constant(std::move(tensor))};
}

Results full_of(GraphCall& call) {
  const Shape shape = call.shape("shape");
  return {full(shape, call.options().number("value", 0), call.dtype(DType::f32))};
}
Results uniform(GraphCall& call) { return {random_uniform(call.shape("shape"))}; }
Results normal(GraphCall& call) { return {random_normal(call.shape("shape"))}; }

Results add_output(GraphCall& call) {
  output(name_of(call), call.operand(0));
  return {};
}
Results add_capture(GraphCall& call) { return {capture(call.operand(0), name_of(call))}; }
Results add_update(GraphCall& call) {
  update(call.operand(0), call.operand(1));
  return {};
}
Results give_name(GraphCall& call) { return {call.operand(0).tensor().named(name_of(call))}; }

Results square_of(GraphCall& call) { return {square(call.operand(0))}; }
Results zeros_like_of(GraphCall& call) { return {zeros_like(call.operand(0))}; }
Results cast_to(GraphCall& call) { return {cast(call.operand(0), call.dtype(DType::f32))}; }
Results power(GraphCall& call) {
  // The exponent may be an operand, a number or the attribute.
  if (call.operands().size() < 2 || call.operands()[1].is_absent())
    return {pow(call.operand(0), call.options().number("exponent", 1))};
  return {pow(call.operand(0), call.operand(1))};
}
Results broadcast(GraphCall& call) { return {broadcast_to(call.operand(0), call.shape("shape"))}; }
Results sum_to(GraphCall& call) { return {sum_to_shape(call.operand(0), call.shape("shape"))}; }
Results rms(GraphCall& call) {
  const Operand weight = call.operands().size() > 1 ? call.operands()[1] : Operand();
  return {rms_norm(call.operand(0), weight, call.options().number("eps", 1e-6))};
}
Results gated_gelu(GraphCall& call) {
  const bool exact = call.options().choice("approximate", {"none", "tanh"}, 1) == 0;
  return {geglu(call.operand(0), call.operand(1), exact ? GeluForm::none : GeluForm::tanh)};
}

Results split_parts(GraphCall& call) {
  const int axis = static_cast<int>(call.options().integer("axis", -1, std::numeric_limits<std::int32_t>::min()));
  if (!call.options().has("parts")) return split(call.operand(0), call.shape("sizes"), axis);
  return detail::split_equal(call.operand(0), static_cast<std::size_t>(call.options().count("parts", 1, 1)), axis);
}
Results split_into_heads(GraphCall& call) { return {split_heads(call.operand(0), call.options().count("heads", 0))}; }
Results merge_into_one(GraphCall& call) { return {merge_heads(call.operand(0))}; }

// `first` is the operand after the keys, or after the values.
AttentionOptions attention_options(GraphCall& call, std::size_t first) {
  Fields& options = call.options();
  return {.heads = options.count("heads", 0),
          .kv_heads = options.count("kv_heads", 0),
          .causal = options.flag("causal", false),
          .scale = options.number("scale", 0),
          .window = options.count("window", 0),
          .soft_cap = options.number("soft_cap", 0),
          .ring = options.flag("ring", false),
          .mask = call.optional(first),
          .sinks = call.optional(first + 1),
          .lengths = call.optional(first + 2),
          .positions = call.optional(first + 3),
          .table = call.optional(first + 4),
          .capture = options.text("capture", "")};
}
Results attend(GraphCall& call) {
  const AttentionOptions options = attention_options(call, 3);
  return {attention(call.operand(0), call.operand(1), call.operand(2), options)};
}
Results weights_of_attention(GraphCall& call) {
  const AttentionOptions options = attention_options(call, 2);
  return {attention_weights(call.operand(0), call.operand(1), options)};
}

}  // namespace

GraphFunction graph_function(std::string_view name) {
  static const std::map<std::string_view, GraphFunction> functions{{"input", input},
                                                                   {"parameter", parameter},
                                                                   {"state", state},
                                                                   {"constant", constant_values},
                                                                   {"full", full_of},
                                                                   {"random_uniform", uniform},
                                                                   {"random_normal", normal},
                                                                   {"output", add_output},
                                                                   {"capture", add_capture},
                                                                   {"update", add_update},
                                                                   {"name", give_name},
                                                                   {"square", square_of},
                                                                   {"zeros_like", zeros_like_of},
                                                                   {"cast", cast_to},
                                                                   {"pow", power},
                                                                   {"broadcast_to", broadcast},
                                                                   {"sum_to_shape", sum_to},
                                                                   {"rms_norm", rms},
                                                                   {"geglu", gated_gelu},
                                                                   {"split", split_parts},
                                                                   {"split_heads", split_into_heads},
                                                                   {"merge_heads", merge_into_one},
                                                                   {"attention", attend},
                                                                   {"attention_weights", weights_of_attention}};
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace jerboa::c_api
