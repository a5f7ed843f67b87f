#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <variant>

#include <jerboa/compile/export.h>
#include <jerboa/models/config.h>

#include "c_api/call.h"
#include "c_api/device_description.h"
#include "c_api/fields.h"
#include "c_api/stored_types.h"
#include "steps/encoder_graph.h"
#include "steps/step_graph.h"

namespace jerboa::c_api {
namespace {

using language::Drawing;
using language::EntryKey;
using language::GraphSettings;

GraphSettings settings_of(const models::Config& config, Fields& options) {
  return {
      .config = config,
      .weights = weights_of(options).value_or(DType::f32),
      .cache = cache_of(options).value_or(DType::f32),
      .blocks = options.count("blocks", 4, 1),
      .block = options.count("block", 32, 1),
      .context = options.count("context", 0),
      .slots = options.count("slots", 0),
      .carried_rows = options.count("carried_rows", 0),
      .precision = options.choice("precision", {"full", "mixed_f16"}, 0) == 0 ? Precision::full : Precision::mixed_f16,
      .is_gpu = true};
}

// An entry of an encoder, which reads whole texts without a cache.
struct EncoderKey {
  int rows = 1, time = 1;
  std::optional<language::Embedding> embedding = {};

  std::string name() const { return fmt::format("encode rows={} time={}", rows, time); }
};

EncoderKey encoder_key(Fields& fields) {
  using models::Pooling;
  constexpr Pooling poolings[] = {Pooling::cls, Pooling::cls, Pooling::last, Pooling::mean, Pooling::max};
  const std::size_t pooling = fields.choice("pooling", {"none", "cls", "last", "mean", "max"}, 0);
  const bool normalise = fields.flag("normalise", false);
  EncoderKey key{.rows = fields.count("rows", 1, 1), .time = fields.count("time", 1, 1)};
  if (pooling > 0) key.embedding = {poolings[pooling], normalise};
  return key;
}

EntryKey step_key(Fields& fields) {
  constexpr Drawing drawings[] = {Drawing::none, Drawing::greedy, Drawing::sampled};
  return {.rows = fields.count("rows", 1, 1),
          .time = fields.count("time", 1, 1),
          .table = fields.count("table", 4, 1),
          .outputs = fields.count("outputs", 1),
          .is_prompt = fields.flag("is_prompt", false),
          .drawing = drawings[fields.choice("drawing", {"none", "greedy", "sampled"}, 0)],
          .masked = fields.flag("masked", false)};
}

using AnyKey = std::variant<EntryKey, EncoderKey>;

std::vector<AnyKey> keys_of(Fields& options, int blocks) {
  const nlohmann::json& list = options.value("entries");
  if (list.is_null()) return {EntryKey{.table = blocks, .drawing = Drawing::none}};
  if (!list.is_array()) throw UsageError("options: entries must be a list");
  std::vector<AnyKey> keys;
  for (const auto& json : list) {
    Fields fields(json, "options: an entry");
    if (fields.flag("encoder", false))
      keys.emplace_back(encoder_key(fields));
    else
      keys.emplace_back(step_key(fields));
    fields.finish();
  }
  return keys;
}

// The number of blocks in the largest table.
int largest_table(const std::vector<AnyKey>& keys) {
  int most = 0;
  for (const AnyKey& key : keys)
    if (const auto* step = std::get_if<EntryKey>(&key)) most = std::max(most, step->table);
  return most;
}

std::pair<std::string, Graph> entry_of(const GraphSettings& settings, const AnyKey& key) {
  if (const auto* step = std::get_if<EntryKey>(&key)) return {step->name(), step_graph(settings, *step)};
  const auto& texts = std::get<EncoderKey>(key);
  const Dim time = Dim::symbol("T", texts.time);
  return {texts.name(), encoder_graph(settings.config, settings.weights, texts.rows, time, texts.embedding)};
}

std::string compile_model(std::string_view config_text, std::string_view options_text) {
  const auto config = models::Config::parse(config_text);
  Fields options(options_text, "options");
  GraphSettings settings = settings_of(config, options);
  const Target target = target_of(options.value("device"));
  const std::vector<AnyKey> keys = keys_of(options, settings.blocks);
  options.finish();
  // Entries share one cache, so they agree on the context even if their tables differ.
  if (settings.context == 0) settings.context = largest_table(keys) * settings.block;
  std::vector<std::pair<std::string, Graph>> entries;
  for (const AnyKey& key : keys) entries.push_back(entry_of(settings, key));
  return encode_program(compile_program(entries, target));
}

std::string compile_graphs(std::string_view text) {
  Fields request(text, "the request");
  const Target target = target_of(request.value("device"));
  const nlohmann::json& graphs = request.value("entries");
  const Checks checks{.finite = request.flag("check_finite", false)};
  request.finish();
  if (!graphs.is_object()) throw UsageError("the request: entries must be an object of graphs by name");
  std::vector<std::pair<std::string, Graph>> entries;
  for (const auto& [name, graph] : graphs.items()) entries.emplace_back(name, from_json(graph.dump()));
  return encode_program(compile_program(entries, target, checks));
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
