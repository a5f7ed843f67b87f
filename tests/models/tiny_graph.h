#pragma once

#include <string>

#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>

namespace jerboa::test {

/// The config of a tiny model; `more` has the keys in question.
inline models::Config tiny_config(const std::string& type, const std::string& more) {
  return models::Config::parse("{" + more + "}").with_defaults(R"({"model_type": ")" + type + R"(", "vocab_size": 8,
      "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12,
      "hidden_act": "silu", "num_hidden_layers": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 6})");
}

/// Its logits of five tokens.
inline Graph tiny_graph(const std::string& type, const std::string& more) {
  const models::Config config = tiny_config(type, more);
  return forward_graph({{"ids", {1, 5}, DType::i32}}, [&](const Inputs& in) {
    return models::family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}});
  });
}

}  // namespace jerboa::test
