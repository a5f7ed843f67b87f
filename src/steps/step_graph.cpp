#include "steps/step_graph.h"

#include <fmt/format.h>

#include <jerboa/compile/graphs.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "steps/sampling_graph.h"

namespace jerboa::language {
namespace {

// Steps of this few tokens take as long as reading the weights; larger ones are worth a GPU's matrix units.
constexpr int few_rows = 4;

InputSpecs text_specs(const GraphSettings& settings, const Dim& rows, const Dim& time, int table) {
  InputSpecs specs{{"ids", {rows, time}, DType::i32},
                   {"positions", {rows, time}, DType::i32},
                   {"lengths", {rows}, DType::i32},
                   {"table", {rows, table}, DType::i32}};
  for (const models::WindowedBlocks& layers : settings.windowed)
    specs.push_back({models::table_name(layers.window), {rows, table}, DType::i32});
  if (settings.slots > 0) specs.push_back({"slots", {rows}, DType::i32});
  return specs;
}

models::CacheOptions cache_options(const GraphSettings& settings, int time, int table) {
  return {.capacity = table * settings.block,
          .context = settings.context,
          .chunk = time,
          .block = settings.block,
          .blocks = settings.blocks,
          .windowed = settings.windowed,
          .dtype = settings.cache,
          .slots = settings.slots};
}

// For the last `outputs` tokens of each row; 0: for all of them.
models::GraphInputs decoder_inputs(const GraphSettings& settings, const Inputs& in, const Tensor& ids, int time,
                                   int outputs) {
  models::NamedTensors tensors{{"ids", ids}};
  for (const char* name : {"positions", "lengths", "table", "slots"})
    if (in.has(name)) tensors.emplace(name, in[name]);
  for (const models::WindowedBlocks& layers : settings.windowed) {
    const std::string name = models::table_name(layers.window);
    tensors.emplace(name, in[name]);
  }
  const auto table = static_cast<int>(tensors.at("table").dim(1).value());
  return {.tensors = std::move(tensors),
          .cache = cache_options(settings, time, table),
          .last = outputs,
          .weights = settings.weights};
}

Tensor decoder_logits(const GraphSettings& settings, const Inputs& in, const Tensor& ids, int time, int outputs) {
  return models::family_of(settings.config).logits(settings.config, decoder_inputs(settings, in, ids, time, outputs));
}

// The tokens carried over from rows of the previous step, -1 in rows without one.
Tensor taken_over(const Tensor& carried, const Tensor& tokens) {
  const Tensor taken = take_along_axis(tokens, maximum(carried, 0));
  return where(carried >= 0, taken, -1);
}

// The ids with those tokens as the last of their rows.
Tensor with_carried(const Tensor& ids, const Tensor& taken) {
  const Dim time = ids.dim(1);
  const Tensor last = slice(ids, 1, time - Dim(1), time), token = unsqueeze(taken, {1});
  const Tensor next = where(token >= 0, token, last);
  if (time.is_constant() && time.value() == 1) return next;
  return concat({slice(ids, 1, 0, time - Dim(1)), next}, 1);
}

// Keeps each row's last token for the next step; rows that this step does not have keep theirs.
void keep_tokens(const Tensor& state, const Tensor& drawn) {
  const Dim rows = drawn.dim(0), outputs = drawn.dim(1), all = state.dim(0);
  const Tensor last = reshape(slice(drawn, 1, outputs - Dim(1), outputs), {rows});
  if (rows.value() == all.value())
    update(state, last);
  else
    update(state, concat({last, slice(state, 0, rows, all)}, 0));
}

}  // namespace

std::string EntryKey::name() const {
  std::string text = is_prompt ? "prompt" : "decode";
  if (rows > 1) text += fmt::format(" rows={}", rows);
  if (!is_prompt && time > 1) text += fmt::format(" time={}", time);
  if (outputs > 1) text += fmt::format(" outputs={}", outputs);
  text += fmt::format(" table={}", table);
  if (drawing == Drawing::none) text += " logits";
  if (drawing == Drawing::sampled) text += " sampled";
  if (masked) text += " masked";
  if (penalised > 0) text += fmt::format(" penalised={}", penalised);
  if (biased > 0) text += fmt::format(" biased={}", biased);
  if (logprobs != Logprobs::none) text += logprobs == Logprobs::drawn ? " logprobs" : " logprobs listed";
  return text;
}

Graph step_graph(const GraphSettings& settings, const EntryKey& key) {
  const Dim time = key.is_prompt ? Dim::symbol("T", key.time) : Dim(key.time);
  InputSpecs specs = text_specs(settings, key.rows, time, key.table);
  const bool takes_over = settings.carried_rows > 0 && !key.is_prompt;
  if (takes_over) specs.push_back({"carried", {key.rows}, DType::i32});
  return forward_graph(
      specs,
      [&](const Inputs& in) -> Outputs {
        const SiteScope scope(CallSite{});
        Tensor tokens, taken, ids = in["ids"];
        if (settings.carried_rows > 0) tokens = state_input(carried_tokens, {settings.carried_rows}, DType::i32);
        if (takes_over) taken = taken_over(in["carried"], tokens);
        if (takes_over) ids = with_carried(ids, taken);
        const Tensor logits = decoder_logits(settings, in, ids, key.time, key.outputs);
        if (key.drawing == Drawing::none) return {{"logits", logits}};
        NamedOutputs outputs = draw_tokens(logits, key, taken, settings.is_gpu);
        if (settings.carried_rows > 0) keep_tokens(tokens, outputs.front().second);
        outputs.emplace_back("logits", logits);
        return outputs;
      },
      {}, key.rows* key.time > few_rows ? settings.precision : Precision::full);
}

std::vector<models::CacheSpec> cache_specs(const GraphSettings& settings) {
  return models::cache_specs(settings.config, cache_options(settings, 1, 1));
}

Graph logits_graph(const GraphSettings& settings, int time, int table) {
  return forward_graph(text_specs(settings, 1, Dim::symbol("T", time), table),
                       [&](const Inputs& in) { return decoder_logits(settings, in, in["ids"], time, 0); });
}

Graph hidden_graph(const GraphSettings& settings, int time, int table) {
  return forward_graph(text_specs(settings, 1, Dim::symbol("T", time), table), [&](const Inputs& in) {
    return models::family_of(settings.config)
        .graphs.decoder(settings.config, decoder_inputs(settings, in, in["ids"], time, 1))
        .at("hidden");
  });
}

Graph score_graph(const GraphSettings& settings, int time, int table) {
  const Dim length = Dim::symbol("T", time);
  InputSpecs specs = text_specs(settings, 1, length, table);
  specs.push_back({"targets", {1, length}, DType::i32});
  const auto scores = [&](const Inputs& in) {
    const Tensor all = log_softmax(decoder_logits(settings, in, in["ids"], time, 0));
    return squeeze(take_along_axis(all, unsqueeze(in["targets"], {-1})), {-1});
  };
  return forward_graph(specs, scores, {}, settings.precision);
}

}  // namespace jerboa::language
