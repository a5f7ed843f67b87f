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
  int capacity = 0;  ///< positions a sequence can have; 0: no cache
  /// Layers whose attention has a window keep only what it can still reach, at position modulo their capacity, which
  /// is the window plus chunk - 1: a chunk is stored before its first query looks back.
  bool ring = false;
  int chunk = 1;  ///< the most tokens a sequence gets in one run
};

/// What a decoder computes from. Positions and lengths are data, so one graph serves ragged batches, prefill in chunks
/// and decode, with the time as a symbol.
struct TextInputs {
  Tensor ids;             ///< i32[batch, time]
  Tensor positions = {};  ///< i32[batch, time], negative for padding; by default 0, 1, …
  Tensor lengths = {};  ///< i32[batch]: tokens of each sequence so far, those of this run included; needed with a cache
  CacheOptions cache = {};
  bool only_last = false;  ///< logits of the last position alone: [batch, 1, vocabulary]
  /// In what type matrices are kept: f32, to be trained; f16 or bf16; i8 or i4, quantised (models/quantise.h), but for
  /// tables that are looked up, which are f16 then, and GPT-2's, which stay f32.
  DType weights = DType::f32;
};

/// A family of decoders: how config.json becomes a graph. Parameters are named as in Hugging Face files, and tied ones
/// appear once.
struct Family {
  std::string_view model_type;  ///< as config.json says it
  /// Logits f32[batch, time, vocabulary], appended to the traced graph.
  Tensor (*logits)(const Config& config, const TextInputs& inputs);
  /// How every parameter's name begins that older files leave out: "transformer."
  std::string_view optional_prefix = {};
  /// The tensors that a checkpoint may hold in place of a parameter [count, rows, columns], one below the other; none
  /// for a parameter that is not held so.
  std::vector<std::string> (*parts)(const std::string& parameter, const Shape& shape) = nullptr;
  /// How config.json calls the number of layers, and how the names of a layer's parameters begin before its number.
  std::string_view layer_count = "num_hidden_layers", layer_prefix = "model.layers.";
};

/// One row a family; adding one adds a file and a row.
std::span<const Family> families();
/// The family that config.json names; throws UsageError that lists those there are.
const Family& family_of(const Config& config);

/// Throws FileError where config.json has more layers than the checkpoint: before a graph is made of them.
void check_layers(const SafeTensors& weights, const Config& config, const Family& family);
/// Throws FileError that names the first few parameters that the checkpoint lacks, or one of another shape or not of
/// floats: before memory is taken for what a file asks for. Weights that the graph does not use are left alone.
void check_params(const SafeTensors& weights, const Graph& graph, const Family& family);

/// The weights of a checkpoint for each parameter of a graph, in the type that it has there, after check_params.
std::map<std::string, HostTensor> read_params(const SafeTensors& weights, const Graph& graph, const Family& family);

/// A parameter's values, to be used before the next one's are read.
struct ParamValues {
  const std::string& name;
  DType dtype;
  Sizes shape;
  std::span<const std::byte> bytes;  ///< the mapped file's own, where it holds the values in this type
};
/// The same one after another, without a copy of those that the file holds as the graph wants them.
void for_each_param(const SafeTensors& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use);

}  // namespace jerboa::models
