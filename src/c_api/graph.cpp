#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/c_api/graph.h>
#include <jerboa/compile/training_step.h>

#include "c_api/call.h"
#include "c_api/graph_builder.h"
#include "c_api/optimizer_options.h"
#include "ir/attr_json.h"

struct jerboa_graph {
  jerboa::c_api::GraphBuilder builder;
};

namespace jerboa::c_api {
namespace {

std::string reply_of(const Graph& graph, const std::vector<Tensor>& results) {
  detail::Json list = detail::Json::array();
  for (const Tensor& result : results) {
    const TensorType& type = graph.type(result.id());
    list.push_back({{"id", result.id()}, {"dtype", name(type.dtype)}, {"shape", detail::shape_json(type.shape)}});
  }
  return detail::Json{{"tensors", list}}.dump();
}

Precision precision_of(Fields& options) {
  return options.choice("precision", {"full", "mixed_f16"}, 0) == 0 ? Precision::full : Precision::mixed_f16;
}

void check_inputs_used(const Graph& graph, const std::string& site) {
  std::vector<bool> used(graph.tensors.size());
  for (const Node& node : graph.nodes)
    for (const TensorId input : node.inputs)
      if (input != no_tensor) used[static_cast<std::size_t>(input)] = true;
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i] && graph.tensors[i].storage == Storage::input) unused.push_back(graph.tensors[i].name);
  if (!unused.empty())
    throw UsageError(
        fmt::format("the loss does not use {} of the batch; leave out what is not needed, or check for a "
                    "misspelt name{}",
                    fmt::join(unused, ", "), site.empty() ? "" : " (" + site + ")"));
}

std::string forward_json(const Graph& graph, Fields options) {
  const Precision precision = precision_of(options);
  options.finish();
  if (graph.outputs.empty()) throw UsageError("the forward pass returns no outputs");
  verify(graph);
  return to_json(with_precision(graph, precision));
}

std::string training_json(const Graph& graph, Fields options) {
  const Optimizer optimizer = optimizer_of(options.value("optimizer"));
  const PrecisionOptions precision{precision_of(options), {}};
  const std::string site = options.text("site", "");
  options.finish();
  check_inputs_used(graph, site);
  verify(graph);
  const SiteScope scope(site);
  return to_json(training_graph(graph, optimizer, {}, precision));
}

}  // namespace
}  // namespace jerboa::c_api

using namespace jerboa::c_api;

jerboa_status jerboa_graph_create(const char* options, size_t options_size, jerboa_graph** graph) {
  return guarded([&] {
    jerboa_graph*& place = handle(graph, "the place for the graph");
    Fields fields(text_of(options, options_size, "options"), "options");
    auto created = std::make_unique<jerboa_graph>();
    created->builder.graph.training = fields.flag("training", false);
    fields.finish();
    place = created.release();
  });
}

void jerboa_graph_free(jerboa_graph* graph) { delete graph; }

jerboa_status jerboa_graph_call(jerboa_graph* graph, const char* call, size_t call_size, jerboa_buffer** reply) {
  return guarded([&] {
    GraphBuilder& builder = handle(graph, "the graph").builder;
    const auto results = builder.call(text_of(call, call_size, "the call"));
    give(reply, reply_of(builder.graph, results));
  });
}

jerboa_status jerboa_graph_forward(const jerboa_graph* graph, const char* options, size_t options_size,
                                   jerboa_buffer** json) {
  return guarded([&] {
    const GraphBuilder& builder = handle(graph, "the graph").builder;
    give(json, forward_json(builder.graph, {text_of(options, options_size, "options"), "options"}));
  });
}

jerboa_status jerboa_graph_training(const jerboa_graph* graph, const char* options, size_t options_size,
                                    jerboa_buffer** json) {
  return guarded([&] {
    const GraphBuilder& builder = handle(graph, "the graph").builder;
    give(json, training_json(builder.graph, {text_of(options, options_size, "options"), "options"}));
  });
}
