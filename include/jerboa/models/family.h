#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/safetensors.h>
#include <jerboa/models/config.h>
#include <jerboa/ops/tensor.h>

namespace jerboa::models {

/// Key/value caches of a decoder, kept as states "cache.LAYER.k" and "cache.LAYER.v".
struct CacheOptions {
  int capacity = 0;  ///< positions per sequence; 0: no cache
  /// Layers whose attention has a window keep only the positions it can still reach, in a ring buffer of window + chunk
  /// - 1 entries: a chunk is stored before its first query is computed.
  bool ring = false;
  int chunk = 1;  ///< the maximum number of tokens per sequence in one run
  /// Positions per block of a paged cache, [blocks, heads, block, size] and read through TextInputs::table; 0: a
  /// straight cache [batch, heads, capacity, size]. The capacity must be a multiple of it, and ring has no effect:
  /// layers with a window share the table with the others.
  int block = 0;
  int blocks = 0;            ///< of a paged cache, for all sequences; 0: as many as fill the table
  DType dtype = DType::f32;  ///< of the cache: f32 or f16
};

/// The inputs of a decoder. Positions and lengths are data and time is a symbol, so one graph serves ragged batches,
/// chunked prefill and decode.
struct TextInputs {
  Tensor ids;             ///< i32[batch, time]
  Tensor positions = {};  ///< i32[batch, time], negative for padding; by default 0, 1, …
  Tensor lengths = {};  ///< i32[batch]: tokens of each sequence so far, those of this run included; needed with a cache
  /// i32[batch, capacity / block], with a paged cache: the block that holds a sequence's positions from i * block on.
  /// Entries past a sequence's length may be negative. Sequences may share blocks, but not write to the same position.
  Tensor table = {};
  CacheOptions cache = {};
  bool only_last = false;  ///< logits of the last position alone: [batch, 1, vocabulary]
  /// The type that matrices are stored in: f32, which is trainable; f16 or bf16; or i8 or i4, quantised
  /// (models/quantise.h), except for embedding tables, which are then f16, and GPT-2's matrices, which stay f32.
  DType weights = DType::f32;
};

/// A family of decoders: how to build a graph from config.json. Parameters are named as in Hugging Face files, and tied
/// ones appear once.
struct Family {
  std::string_view model_type;  ///< as in config.json
  /// Logits f32[batch, time, vocabulary], appended to the traced graph.
  Tensor (*logits)(const Config& config, const TextInputs& inputs);
  /// The prefix of every parameter name that older files omit: "transformer."
  std::string_view optional_prefix = {};
  /// The tensors that a checkpoint may hold in place of a parameter [count, rows, columns], to be stacked; none for a
  /// parameter that is stored whole.
  std::vector<std::string> (*parts)(const std::string& parameter, const Shape& shape) = nullptr;
  /// The key of the number of layers in config.json, and the prefix of a layer's parameter names up to its number.
  std::string_view layer_count = "num_hidden_layers", layer_prefix = "model.layers.";
};

/// One row per family; adding a family adds a file and a row.
std::span<const Family> families();
/// The family that config.json names; throws UsageError that lists the known ones.
const Family& family_of(const Config& config);

/// Throws FileError if config.json has more layers than the checkpoint. Call it before building a graph from them.
void check_layers(const TensorSource& weights, const Config& config, const Family& family);
/// Throws FileError that names the first few parameters that the checkpoint lacks, or one whose shape differs or that
/// does not hold floats. Call it before allocating what the file asks for. Weights that the graph does not use are
/// ignored.
void check_params(const TensorSource& weights, const Graph& graph, const Family& family);

/// The weights of a checkpoint for each parameter of a graph, in the graph's type. Call check_params first.
std::map<std::string, HostTensor> read_params(const TensorSource& weights, const Graph& graph, const Family& family);

/// A parameter's values, valid until the next parameter is read.
struct ParamValues {
  const std::string& name;
  DType dtype;
  Sizes shape;
  std::span<const std::byte> bytes;  ///< the file's own bytes, where it holds the values in this type
};
/// The same, one parameter at a time, without copying those that the file already holds in the graph's type.
void for_each_param(const TensorSource& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use);

}  // namespace jerboa::models
