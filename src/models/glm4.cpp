#include "models/family_graphs.h"
#include "models/glm.h"

// GLM-4: GLM with norms after both halves of a layer, too.
namespace jerboa::models {

NamedTensors glm4_decoder(const Config& config, const GraphInputs& inputs) {
  return glm_like(config, inputs, [](StackForm& stack) {
    stack.after_attention = "post_self_attn_layernorm";
    stack.after_mlp = "post_mlp_layernorm";
  });
}

}  // namespace jerboa::models
