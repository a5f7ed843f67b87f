#pragma once

#include <string>

#include <jerboa/ir/rope.h>

#include "models/caches.h"
#include "models/modules.h"

namespace jerboa::models {

/// How queries attend to keys.
struct ScoreOptions {
  int window = 0;       ///< positions a query sees, ending with its own; 0: all
  double scale = 0;     ///< of the scores; 0: 1 / sqrt(size of a head)
  double soft_cap = 0;  ///< of the scores; 0: none
  Tensor sinks = {};    ///< one logit per head that takes part in the softmax without a value
};

/// The building blocks of a decoder's graph, and what its layers share.
class Decoder : public Modules {
 public:
  /// Throws UsageError for inconsistent inputs.
  Decoder(const Config& config, const GraphInputs& inputs);

  const Tensor& ids() const { return ids_; }
  /// i32[batch, time], negative for padding.
  const Tensor& positions() const { return positions_; }
  const Caches& caches() const { return caches_; }

  Tensor rope(const Tensor& x, const RopeAttrs& attrs) const;
  /// The same with frequencies that RopeAttrs cannot express, of pairs (0, n/2), (1, n/2 + 1), … of the leading
  /// features.
  Tensor rope(const Tensor& x, const RopeTable& table) const;
  /// The keys and values [batch, heads, time, size] that this run's queries attend to, including those in the layer's
  /// cache if there is one.
  Caches::KeysAndValues remember(int layer, const Tensor& k, const Tensor& v, int window) const;
  /// Causal attention of queries [batch, heads, time, size].
  Tensor attend_to(const Caches::KeysAndValues& seen, const Tensor& q, const ScoreOptions& scores) const;
  /// remember and attend_to together.
  Tensor attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreOptions& scores = {}) const;
  /// The same with vectors [batch, 1, time, size] that all heads use both as keys and as values. Needs a cache for the
  /// layer.
  Tensor attend_latent(int layer, const Tensor& q, const Tensor& latent, const ScoreOptions& scores) const;
  /// The logits of a table NAME.weight [count, width], at every position or only at the last ones.
  Tensor logits(const std::string& name, const Tensor& hidden, int count) const;
  /// The named outputs of a decoder's graph.
  NamedTensors results(const std::string& table, const Tensor& hidden, int count) const;

 private:
  AttentionOptions attention_options(const ScoreOptions& scores) const;

  Tensor ids_, positions_, lengths_;
  Caches caches_;
  DType cache_type_;
  int last_;
};

}  // namespace jerboa::models
