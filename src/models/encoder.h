#pragma once

#include <optional>
#include <string>

#include "models/modules.h"

namespace jerboa::models {

/// How tokens attend to each other.
struct EncoderScores {
  std::optional<int> reach = {};  ///< the largest distance that is seen, in either direction; empty: any
  Tensor bias = {};               ///< added to the scores; broadcasts to [batch, heads, time, time]
};

/// The building blocks of a text encoder's graph, in which all tokens see each other. Shorter rows of a batch are
/// padded at the end, after `lengths` tokens.
class Encoder : public Modules {
 public:
  /// Throws UsageError for inputs that an encoder does not use.
  Encoder(const Config& config, const GraphInputs& inputs);

  const Tensor& ids() const { return ids_; }

  /// The rows of positions 0, 1, … in a table NAME of `count` rows: [time, width].
  Tensor positions(const std::string& name, int count, int width) const;
  /// The same with RoBERTa's position numbers, which start after the padding token's id and skip padding tokens:
  /// [batch, time, width].
  Tensor positions_after(int padding_token, const std::string& name, int count, int width) const;
  /// The rows of the tokens' types, by default 0, in a table NAME; the shape broadcasts to [batch, time, width].
  Tensor token_types(const std::string& name, int count, int width) const;

  /// q, k and v are [batch, heads, time, size].
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const EncoderScores& scores = {}) const;
  /// Rotary embedding of [batch, heads, time, size] at positions 0, 1, …
  Tensor rope(const Tensor& x, const RopeAttrs& attrs) const;
  /// How far each key is from each query, i32[time, time]: negative for earlier ones.
  Tensor distances() const;

 private:
  const Dim& time() const { return time_; }
  /// Throws UsageError if sequences may be longer than `count` tokens.
  void want_positions(std::int64_t count) const;

  std::string origin_;
  Tensor ids_, lengths_, token_types_;
  Dim time_;
};

/// The number of heads under this key, which must divide the width.
int head_count(const Config& config, const std::string& key, const std::string& width_key);
/// The id of the padding token.
int padding_token(const Config& config);
/// Throws FileError if the config asks for a decoder or for a feature that BERT-like encoders do not have.
void want_plain_encoder(const Config& config);

}  // namespace jerboa::models
