#include "models/family_graphs.h"
#include "models/llama_like.h"

// nanochat: norms without weights, also of the embeddings and, after rope, of each head's queries and keys; rotation in
// the opposite direction, and an MLP without a gate.
namespace jerboa::models {

NamedTensors nanochat_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "relu2", "final_logit_softcapping": 15})");
  const Decoder decoder(config, inputs);
  const Norm norm = [eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return rms_norm(x, {}, eps).named(name);
  };
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.head_norm = norm;
  form.norm_after_rope = true;
  refuse_long_rope(config, form);
  for (auto& rope : form.ropes) rope->inverse = true;
  StackForm stack = stack_form(decoder, config);
  stack.norm = norm;
  stack.embedding_norm = "model.embed_norm";
  stack.logit_cap = config.limit("final_logit_softcapping");
  const PlainMlp mlp{.up = "fc1", .down = "fc2"};
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return plain_mlp(decoder, config, mlp, name, x);
  });
}

}  // namespace jerboa::models
