#include "verify/logit_goldens.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>

#include "verify/golden_folder.h"

namespace jerboa {
namespace {

class LogitGoldens : GoldenFolder {
 public:
  using GoldenFolder::GoldenFolder;

  std::vector<CaseReport> run() const {
    if (goldens.contains("pixel_values")) refuse("its logits depend on pixel_values, but only text can be verified");
    const HostTensor prompt = integers("input_ids"), tokens = integers("greedy");
    if (prompt.size() == 0) refuse("input_ids has no tokens");
    if (tokens.shape()[0] != prompt.shape()[0]) refuse("greedy and input_ids have different batch sizes");
    if (tokens.shape()[1] <= prompt.shape()[1]) refuse("greedy adds no token to input_ids");
    return {logits(prompt), greedy(prompt.shape()[1], tokens)};
  }

 private:
  CaseReport logits(const HostTensor& prompt) const {
    const HostTensor logits = logits_of(prompt);
    const Sizes shape(goldens.view("logits").shape);
    if (logits.shape() != shape)
      return {"logits", false, fmt::format("{} instead of {}", to_string(logits.shape()), to_string(shape))};
    const auto computed = logits.f32();
    const auto golden = to_f64(goldens.view("logits"));
    const auto wrong =
        difference(std::vector<double>(computed.begin(), computed.end()), golden, tolerance_for_typical(golden));
    return {"logits", !wrong, wrong.value_or("")};
  }

  HostTensor logits_of(const HostTensor& ids) const {
    const InputSpecs specs{{"ids", to_shape(ids.shape()), DType::i32}};
    const Graph graph = forward_graph(specs, [&](const Inputs& in) {
      return family.logits(config, {.tensors = {{"ids", in["ids"]}}});
    });
    check(graph);
    Module module = compile(graph, {.device = device});
    module.session().upload_params(models::read_params(weights, module.ir(), family));
    return module.run({{"ids", ids}}).get("output");
  }

  // Decodes as generation does: prefill of the key/value caches in one run, then one token at a time. Each golden token
  // must be the argmax after those before it.
  CaseReport greedy(std::int64_t prompt, const HostTensor& tokens) const {
    const std::int64_t batch = tokens.shape()[0], time = tokens.shape()[1];
    const models::CacheOptions cache{.capacity = static_cast<int>(time), .chunk = static_cast<int>(prompt)};
    Session session = create_session(
        {{"prefill", step_graph(batch, prompt, cache)}, {"decode", step_graph(batch, 1, cache)}}, {.device = device});
    session.upload_params(models::read_params(weights, session.graph("prefill"), family));
    for (std::int64_t at = 0, next = prompt; next < time; at = next++) {
      const HostTensor scores =
          session.run(at == 0 ? "prefill" : "decode", step_inputs(tokens, at, next)).get("output");
      const std::int64_t vocabulary = scores.shape().back();
      for (std::int64_t row = 0; row < batch; ++row) {
        const auto logits =
            scores.f32().subspan(static_cast<std::size_t>(row * vocabulary), static_cast<std::size_t>(vocabulary));
        const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
        const auto wanted = tokens.i32()[static_cast<std::size_t>(row * time + next)];
        if (best != wanted) return {"greedy", false, fmt::format("token {} is {} instead of {}", next, best, wanted)};
      }
    }
    return {"greedy", true, {}};
  }

  Graph step_graph(std::int64_t batch, std::int64_t time, const models::CacheOptions& cache) const {
    const InputSpecs specs{
        {"ids", {batch, time}, DType::i32}, {"positions", {batch, time}, DType::i32}, {"lengths", {batch}, DType::i32}};
    return forward_graph(specs, [&](const Inputs& in) {
      return family.logits(config, {.tensors = in.all(), .cache = cache, .last = 1});
    });
  }

  // Tokens [from, to) of every row, as inputs of a step.
  static TensorMap step_inputs(const HostTensor& tokens, std::int64_t from, std::int64_t to) {
    const std::int64_t batch = tokens.shape()[0], count = to - from;
    HostTensor ids(DType::i32, {batch, count}), positions = ids, lengths(DType::i32, {batch});
    for (std::int64_t row = 0; row < batch; ++row) {
      for (std::int64_t i = 0; i < count; ++i) {
        ids.set_number(row * count + i, tokens.number(row * tokens.shape()[1] + from + i));
        positions.set_number(row * count + i, static_cast<double>(from + i));
      }
      lengths.set_number(row, static_cast<double>(to));
    }
    return {{"ids", std::move(ids)}, {"positions", std::move(positions)}, {"lengths", std::move(lengths)}};
  }
};

}  // namespace

std::vector<CaseReport> verify_logit_goldens(const std::filesystem::path& folder, const Device& device) {
  return LogitGoldens(folder, device).run();
}

}  // namespace jerboa
