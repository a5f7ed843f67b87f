#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jerboa/frontend/nn.h>
#include <jerboa/ops/ops.h>

namespace jerboa::cli {

/// The GPT whose training steps are measured. torch_peer.cpp, which --against torch runs, has the same one.
struct Block {
  int width = 0, heads = 1;
  nn::LayerNorm ln1{width}, ln2{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 4 * width}, down{4 * width, width};
  JERBOA_FIELDS(ln1, ln2, qkv, proj, up, down)
  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(ln1(x)));
    x = x + proj(attention(q, k, v, {.heads = heads, .causal = true}));
    return x + down(gelu(up(ln2(x)), GeluForm::tanh));
  }
};

struct Gpt {
  int vocab = 256, width = 256, layers = 4, heads = 8, context = 128;
  nn::Embedding tok{vocab, width}, pos{context, width};
  std::vector<Block> blocks = nn::stack<Block>(layers, {.width = width, .heads = heads});
  nn::LayerNorm norm{width};
  nn::Linear head{width, vocab, {.bias = false}};
  JERBOA_FIELDS(tok, pos, blocks, norm, head)
  Tensor operator()(Tensor ids) const {
    Tensor x = tok(ids) + pos(arange(ids.dim(-1)));
    for (const auto& block : blocks) x = block(x);
    return head(norm(x));
  }
};

/// A training step that `bench` measures, and whose products `tune` measures.
struct TrainingShape {
  std::string name;
  Gpt model;
  int batch = 0, length = 0;
  bool decays_weights = false;  ///< AdamW instead of Adam
};

/// The suffix of steps in mixed precision.
inline constexpr std::string_view mixed_suffix = "_mixed";

/// The last shape is GPT-2 with 124 million parameters, plus a head, which is not tied here.
inline std::vector<TrainingShape> training_shapes() {
  return {{"tiny", {.width = 64, .layers = 2, .heads = 4, .context = 32}, 16, 32},
          {"small", {}, 8, 128},
          {"gpt2", {.vocab = 50304, .width = 768, .layers = 12, .heads = 12, .context = 1024}, 8, 1024, true}};
}

}  // namespace jerboa::cli
