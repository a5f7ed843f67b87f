#include <fmt/format.h>

#include <jerboa/compile/export.h>
#include <jerboa/models/config.h>

#include "c_api/call.h"
#include "c_api/device_description.h"
#include "c_api/fields.h"
#include "steps/step_graph.h"

namespace jerboa::c_api {
namespace {

using language::Drawing;
using language::EntryKey;
using language::GraphSettings;

DType weights_of(Fields& options) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16, DType::i8, DType::i4};
  return types[options.choice("weights", {"f32", "f16", "bf16", "int8", "int4"}, 0)];
}

GraphSettings settings_of(const models::Config& config, Fields& options) {
  return {
      .config = config,
      .weights = weights_of(options),
      .cache = options.choice("cache", {"f32", "f16"}, 0) == 0 ? DType::f32 : DType::f16,
      .blocks = options.count("blocks", 4, 1),
      .block = options.count("block", 32, 1),
      .slots = options.count("slots", 0),
      .carried_rows = options.count("carried_rows", 0),
      .precision = options.choice("precision", {"full", "mixed_f16"}, 0) == 0 ? Precision::full : Precision::mixed_f16,
      .is_gpu = true};
}

EntryKey key_of(const nlohmann::json& json) {
  constexpr Drawing drawings[] = {Drawing::none, Drawing::greedy, Drawing::sampled};
  Fields fields(json, "options: an entry");
  const EntryKey key{.rows = fields.count("rows", 1, 1),
                     .time = fields.count("time", 1, 1),
                     .table = fields.count("table", 4, 1),
                     .outputs = fields.count("outputs", 1),
                     .is_prompt = fields.flag("is_prompt", false),
                     .drawing = drawings[fields.choice("drawing", {"none", "greedy", "sampled"}, 0)],
                     .masked = fields.flag("masked", false)};
  fields.finish();
  return key;
}

std::string compile_model(std::string_view config_text, std::string_view options_text) {
  const auto config = models::Config::parse(config_text);
  Fields options(options_text, "options");
  const GraphSettings settings = settings_of(config, options);
  const Target target = target_of(options.value("device"));
  const nlohmann::json& keys = options.value("entries");
  if (!keys.is_null() && !keys.is_array()) throw UsageError("options: entries must be a list");
  options.finish();
  std::vector<std::pair<std::string, Graph>> entries;
  const auto add = [&](const EntryKey& key) { entries.emplace_back(key.name(), step_graph(settings, key)); };
  if (keys.is_null()) add({.table = settings.blocks, .drawing = Drawing::none});
  for (const auto& key : keys) add(key_of(key));
  return encode_program(compile_program(entries, target));
}

std::string compile_graphs(std::string_view text) {
  Fields request(text, "the request");
  const Target target = target_of(request.value("device"));
  const nlohmann::json& graphs = request.value("entries");
  request.finish();
  if (!graphs.is_object()) throw UsageError("the request: entries must be an object of graphs by name");
  std::vector<std::pair<std::string, Graph>> entries;
  for (const auto& [name, graph] : graphs.items()) entries.emplace_back(name, from_json(graph.dump()));
  return encode_program(compile_program(entries, target));
}

}  // namespace
}  // namespace jerboa::c_api

using namespace jerboa::c_api;

jerboa_status jerboa_compile_model(const char* config, size_t config_size, const char* options, size_t options_size,
                                   jerboa_buffer** program) {
  return guarded([&] {
    give(program, compile_model(text_of(config, config_size, "config"), text_of(options, options_size, "options")));
  });
}

jerboa_status jerboa_compile_graphs(const char* request, size_t request_size, jerboa_buffer** program) {
  return guarded([&] { give(program, compile_graphs(text_of(request, request_size, "request"))); });
}
