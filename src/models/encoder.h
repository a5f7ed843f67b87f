#pragma once

#include <optional>
#include <string>

#include "models/modules.h"

namespace jerboa::models {

/// How tokens attend to each other.
struct EncoderScores {
  std::optional<int> reach = {};  ///< the largest distance that is seen, in either direction; by default any
  Tensor bias = {};               ///< added to the scores; broadcasts to [batch, heads, time, time]
};

/// The building blocks of a text encoder's graph, whose tokens all see each other. Shorter rows of a batch are padded
/// at the end; `lengths` says where.
class Encoder : public Modules {
 public:
  /// Throws UsageError for inputs that an encoder has no use for.
  Encoder(const Config& config, const GraphInputs& inputs);

  const Tensor& ids() const { return ids_; }

  /// The row NAME of each position 0, 1, … in a table of `count`: [time, width].
  Tensor positions(const std::string& name, int count, int width) const;
  /// The same for RoBERTa's numbers, which begin after that of the padding token and skip such tokens in a text:
  /// [batch, time, width].
  Tensor positions_after(int padding_token, const std::string& name, int count, int width) const;
  /// The row NAME of each token's type, by default 0; its shape broadcasts to [batch, time, width].
  Tensor token_types(const std::string& name, int count, int width) const;

  /// Of [batch, heads, time, size].
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const EncoderScores& scores = {}) const;
  /// Rotary embedding of [batch, heads, time, size] at positions 0, 1, …
  Tensor rope(const Tensor& x, const RopeAttrs& attrs) const;
  /// How far each key is from each query, i32[time, time]: negative for earlier ones.
  Tensor distances() const;

 private:
  const Dim& time() const { return time_; }
  /// Throws UsageError if texts may be longer than that.
  void want_positions(std::int64_t count) const;

  std::string origin_;
  Tensor ids_, lengths_, token_types_;
  Dim time_;
};

/// The number of heads under this key, which must divide the width.
int head_count(const Config& config, const std::string& key, const std::string& width_key);
/// The number of the padding token.
int padding_token(const Config& config);
/// Throws FileError if the config asks for a decoder, or for something else that encoders of BERT's kind do not have.
void want_plain_encoder(const Config& config);

}  // namespace jerboa::models
