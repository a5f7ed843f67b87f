#pragma once

#include <vector>

#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>

namespace jerboa::test {

/// The smallest transformer that has every feature: tied embeddings, attention, dropout, clipping.
struct SmallBlock {
  int width = 0, heads = 1;
  nn::LayerNorm norm{width};
  nn::Linear qkv{width, 3 * width}, proj{width, width}, up{width, 2 * width}, down{2 * width, width};
  nn::Dropout dropout{0.1};
  JERBOA_FIELDS(norm, qkv, proj, up, down, dropout)
  Tensor operator()(Tensor x) const {
    auto [q, k, v] = split<3>(qkv(norm(x)));
    x = x + dropout(proj(attention(q, k, v, {.heads = heads, .causal = true})));
    return x + down(gelu(up(x)));
  }
};

struct SmallGpt {
  nn::Embedding tok{31, 24};
  std::vector<SmallBlock> blocks = nn::stack<SmallBlock>(2, {.width = 24, .heads = 3});
  JERBOA_FIELDS(tok, blocks)
  Tensor operator()(Tensor ids) const {
    Tensor x = tok(ids);
    for (const auto& block : blocks) x = block(x);
    return tok.logits(x);
  }
};

inline HostTensor small_ids(std::int64_t batch, std::int64_t length, int shift) {
  HostTensor ids(DType::i32, {batch, length});
  for (std::int64_t i = 0; i < batch * length; ++i) ids.set_number(i, static_cast<double>((i * 7 + shift) % 31));
  return ids;
}

inline Batch small_batch(int number) {
  return {{"ids", small_ids(3, 10, number)}, {"targets", small_ids(3, 10, number + 1)}};
}
/// The entry that a trainer compiles for such a batch.
inline constexpr const char* small_step = "step ids:i32[3, 10] targets:i32[3, 10]";

inline Trainer<SmallGpt> small_trainer(Device device) {
  return {
      SmallGpt{},
      next_token_loss,
      {.optimizer = AdamW{.lr = warmup_cosine(1e-2, 2, 20), .clip_norm = 1}, .device = std::move(device), .seed = 5}};
}

/// Losses of the first steps, and the parameters after them.
struct SmallTraining {
  std::vector<double> losses;
  TensorMap params;
};

inline SmallTraining small_training(Device device) {
  Trainer<SmallGpt> trainer = small_trainer(std::move(device));
  SmallTraining result;
  for (int step = 0; step < 4; ++step) result.losses.push_back(trainer.step(small_batch(step)).loss());
  result.params = trainer.session().download_params();
  return result;
}

/// Output "output": the probabilities of ids [2, T] for any T up to 40.
inline Graph small_forward_of_any_length() {
  const Dim length = Dim::symbol("T", 40);
  SmallGpt model;
  assign_paths(model);
  return trace([&] { output("output", softmax(model(tensor_input("ids", {2, length}, DType::i32)))); });
}

}  // namespace jerboa::test
