#include <array>

#include "models/bert_like.h"
#include "models/family_graphs.h"

// MPNet: RoBERTa without token types, with a bias for the distance between tokens that all layers share.
namespace jerboa::models {
namespace {

// The table of position biases has 16 rows for keys up to the query and 16 for those after it. The first 8 rows of each
// half are for distances 0 to 7, the other 8 for ranges that begin at 8 and then at these distances, which grow by a
// factor of (128 / 8)^(1/8). The table may have more rows, but transformers uses 32 whatever the config says.
constexpr int mpnet_buckets = 32;
constexpr std::array far_from{12, 16, 23, 32, 46, 64, 91};

Tensor bucket_of(const Tensor& distances) {
  const Tensor distance = abs(distances);
  Tensor far = full(distance.shape(), 8, DType::i32);
  for (const int least : far_from) far = far + cast(greater_equal(distance, least), DType::i32);
  const Tensor later = cast(greater(distances, 0), DType::i32) * (mpnet_buckets / 2);
  return later + where(less(distance, 8), distance, far);
}

// [heads, time, time]
Tensor position_bias(const Encoder& encoder, const Config& config, int heads) {
  const int rows = config.size("relative_attention_num_buckets", mpnet_buckets);
  if (rows < mpnet_buckets) config.fail("relative_attention_num_buckets", "is below 32, which the model uses");
  const Tensor bias =
      encoder.embedding("mpnet.encoder.relative_attention_bias", bucket_of(encoder.distances()), rows, heads);
  return transpose(bias, {2, 0, 1});
}

}  // namespace

// Positions start after the padding token's id, which is fixed, whatever pad_token_id says.
int mpnet_first_position(const Config&) { return 2; }

NamedTensors mpnet_encoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "gelu"})");
  want_plain_encoder(config);
  const Encoder encoder(config, inputs);
  BertForm form = bert_form(config, "mpnet.encoder.layer.");
  form.names.query = ".attention.attn.q";
  form.names.key = ".attention.attn.k";
  form.names.value = ".attention.attn.v";
  form.names.output = ".attention.attn.o";
  form.names.attention_norm = ".attention.LayerNorm";
  const std::string name = "mpnet.embeddings";
  const Tensor words =
      encoder.embedding(name + ".word_embeddings", encoder.ids(), config.size("vocab_size"), form.width);
  const Tensor places = encoder.positions_after(mpnet_first_position(config) - 1, name + ".position_embeddings",
                                                config.size("max_position_embeddings", 512), form.width);
  const Tensor x = encoder.layer_norm(name + ".LayerNorm", words + places, form.eps);
  form.score_bias = position_bias(encoder, config, form.heads);
  return {{"hidden", bert_layers(encoder, config, form, x)}};
}

NamedTensors mpnet_pooler(const Config& config, const GraphInputs& inputs) {
  return roberta_like_pooler(config, inputs, "mpnet.");
}

}  // namespace jerboa::models
