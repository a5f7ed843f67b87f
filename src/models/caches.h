#pragma once

#include <string>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

/// What a graph's layers keep between runs. A layer says what it needs; this decides how it is stored.
class Caches {
 public:
  /// Throws UsageError for inconsistent inputs.
  explicit Caches(const GraphInputs& inputs);

  /// Without, layers see only the tokens of this run.
  bool any() const { return options_.capacity > 0; }
  /// The longest text that the caches are used for.
  int context() const { return options_.context > 0 ? options_.context : options_.capacity; }

  /// Keys and values [batch, heads, positions, size] of all tokens so far.
  struct KeysAndValues {
    Tensor keys, values;
    bool ring = false;  ///< positions are modulo the size of the cache
    Tensor table = {};  ///< through which they are read; empty if the cache is not paged
  };
  /// Appends those of this run to the layer's cache. With a window, older ones may be dropped.
  KeysAndValues append(int layer, const Tensor& keys, const Tensor& values, int window) const;
  /// Appends vectors [batch, 1, time, size] that a layer computes keys and values from.
  Tensor append_latent(int layer, const Tensor& values) const;

  /// The state NAME of a recurrent layer before this run, f32[batch, shape]; zeros for a sequence that begins.
  Tensor state(int layer, const std::string& name, const Shape& shape) const;
  /// The same state after this run. Rows that are all padding keep theirs.
  void set_state(int layer, const std::string& name, const Tensor& after) const;

  /// What an op with a state of its own continues from: the state NAME, f32[batch, shape], where there are caches.
  RecurrentOptions recurrent(int layer, const std::string& name, const Shape& shape) const;
  /// Records the state after this run, which such an op gave.
  void set_recurrent(const RecurrentOptions& before, const Recurrent& result) const;

  /// Of the cache that attention reads; empty if it is not paged.
  Tensor table() const { return options_.block > 0 ? table_ : Tensor(); }

 private:
  void check(const GraphInputs& inputs) const;
  /// The blocks of layers with this window, and the table: those of all, where they have none of their own.
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
