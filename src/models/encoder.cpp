#include "models/encoder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {

Encoder::Encoder(const Config& config, const GraphInputs& inputs)
    : Modules(config, inputs.weights, inputs.products),
      origin_(config.origin()),
      ids_(inputs.find("ids")),
      lengths_(inputs.find("lengths")),
      token_types_(inputs.find("token_types")) {
  if (!ids_ || ids_.rank() != 2)
    throw UsageError(fmt::format("ids must be [batch, time], not {}", ids_ ? to_string(ids_.shape()) : "missing"));
  if (inputs.cache.capacity > 0) throw UsageError("an encoder sees a text as a whole and cannot use a cache");
  if (inputs.find("positions")) throw UsageError("an encoder counts positions itself: leave out the input positions");
  time_ = ids_.dim(1);
}

void Encoder::want_positions(std::int64_t count) const {
  if (time_.upper_bound() > count)
    throw UsageError(
        fmt::format("{}: the model supports texts of up to {} tokens, not {}", origin_, count, time_.upper_bound()));
}

Tensor Encoder::positions(const std::string& name, int count, int width) const {
  want_positions(count);
  return embedding(name, arange(time()), count, width);
}

Tensor Encoder::positions_after(int padding_token, const std::string& name, int count, int width) const {
  want_positions(std::int64_t{count} - padding_token - 1);
  const Tensor is_text = cast(not_equal(ids_, padding_token), DType::i32);
  return embedding(name, cumsum(is_text, 1) * is_text + padding_token, count, width);
}

Tensor Encoder::token_types(const std::string& name, int count, int width) const {
  return embedding(name, token_types_ ? token_types_ : arange(1), count, width);
}

Tensor Encoder::distances() const {
  const Tensor position = arange(time());
  const Tensor of_keys = unsqueeze(position, {0});
  return of_keys - unsqueeze(position, {1});
}

Tensor Encoder::attend(const Tensor& q, const Tensor& k, const Tensor& v, const EncoderScores& scores) const {
  AttentionOptions options{.mask = scores.bias, .lengths = lengths_};
  if (scores.reach && scores.bias) throw UsageError("attention with a reach cannot have a bias as well");
  if (scores.reach) options.mask = less_equal(abs(distances()), *scores.reach);
  return attention(q, k, v, options);
}

Tensor Encoder::rope(const Tensor& x, const RopeAttrs& attrs) const { return jerboa::rope(x, {}, attrs); }

int head_count(const Config& config, const std::string& key, const std::string& width_key) {
  const int heads = config.size(key), width = config.size(width_key);
  if (width % heads != 0) config.fail(key, fmt::format("does not divide {} {}", width_key, width));
  return heads;
}

int padding_token(const Config& config) {
  const int token = config.integer("pad_token_id");
  if (token < 0) config.fail("pad_token_id", "is below zero");
  return token;
}

void want_plain_encoder(const Config& config) {
  for (const char* key : {"is_decoder", "add_cross_attention"})
    if (config.flag(key, false)) config.fail(key, "is not supported: the model is used as an encoder");
  if (config.text("position_embedding_type", "absolute") != "absolute")
    config.fail("position_embedding_type", "is not supported; only absolute positions are");
  if (const auto pruned = config.section("pruned_heads"); pruned && !pruned->keys().empty())
    config.fail("pruned_heads", "is not supported");
}

}  // namespace jerboa::models
