#include "steps/encoder_graph.h"

#include <jerboa/models/family.h>

namespace jerboa::language {

InputSpecs encoder_inputs(const models::Config& config, const Dim& batch, const Dim& time) {
  InputSpecs specs{{"ids", {batch, time}, DType::i32}, {"lengths", {batch}, DType::i32}};
  if (models::family_of(config).graphs.encoder) specs.push_back({"token_types", {batch, time}, DType::i32});
  return specs;
}

Graph encoder_graph(const models::Config& config, DType weights, const Dim& batch, const Dim& time,
                    const std::optional<Embedding>& embedding) {
  return forward_graph(encoder_inputs(config, batch, time), [&](const Inputs& in) -> Outputs {
    const auto results = models::family_of(config).encode(config, {.tensors = in.all(), .weights = weights});
    const Tensor& hidden = results.at("hidden");
    std::vector<std::pair<std::string, Tensor>> outputs{{"hidden", hidden}};
    if (embedding) {
      const Tensor pooled = models::pool(hidden, in["lengths"], embedding->pooling);
      outputs.emplace_back("pooled", embedding->normalise ? models::unit_rows(pooled) : pooled);
    }
    if (const auto found = results.find("logits"); found != results.end())
      outputs.emplace_back("logits", found->second);
    return outputs;
  });
}

}  // namespace jerboa::language
