#pragma once

#include <string>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

/// The state that a graph's layers keep between runs. Layers say what they need; this class decides how it is stored.
class Caches {
 public:
  /// Throws UsageError for inconsistent inputs.
  explicit Caches(const GraphInputs& inputs);

  /// Without caches, layers see only the tokens of this run.
  bool any() const { return options_.capacity > 0; }
  /// The length of the longest sequence that the caches are used for.
  int context() const { return options_.context > 0 ? options_.context : options_.capacity; }

  /// Keys and values [batch, heads, positions, size] of all tokens so far.
  struct KeysAndValues {
    Tensor keys, values;
    bool ring = false;  ///< positions are modulo the size of the cache
    Tensor table = {};  ///< the block table to read them through; empty if the cache is not paged
  };
  /// Appends this run's keys and values to the layer's cache. With a window, older ones may be dropped.
  KeysAndValues append(int layer, const Tensor& keys, const Tensor& values, int window) const;
  /// Appends vectors [batch, 1, time, size] that a layer computes keys and values from.
  Tensor append_latent(int layer, const Tensor& values) const;

  /// The state NAME of a recurrent layer before this run, f32[batch, shape]; zeros for a sequence that starts in this
  /// run.
  Tensor state(int layer, const std::string& name, const Shape& shape) const;
  /// The same state after this run. Rows that are all padding keep theirs.
  void set_state(int layer, const std::string& name, const Tensor& after) const;

  /// The state NAME, f32[batch, shape], for an op that updates it in place; empty if there are no caches.
  RecurrentOptions recurrent(int layer, const std::string& name, const Shape& shape) const;
  /// Records the state that such an op returned.
  void set_recurrent(const RecurrentOptions& before, const Recurrent& result) const;

  /// The block table that attention reads the cache through; empty if the cache is not paged.
  Tensor table() const { return options_.block > 0 ? table_ : Tensor(); }

 private:
  void check(const GraphInputs& inputs) const;
  /// The blocks and the table of layers with this window: those of all layers, unless the window has blocks of its own.
  struct Paged {
    WindowedBlocks blocks;
    Tensor table;
  };
  Paged paged(int window) const;
  Tensor appended(const std::string& name, const Tensor& values, int capacity, CacheKind kind,
                  const Paged& paged) const;
  Tensor allocate(const std::string& name, CacheKind kind, const Shape& shape, DType dtype, int window = 0) const;
  /// [slots, 1, 1, size]
  Tensor state_of(const std::string& name, const Dim& size) const;
  Dim batch() const { return positions_.dim(0); }

  CacheOptions options_;
  Tensor positions_, lengths_, table_, slots_;
  std::vector<Tensor> windowed_tables_;  // by group
  std::vector<CacheSpec>* specs_;
};

/// The state's name.
std::string cache_name(int layer, const std::string& name);

}  // namespace jerboa::models
