#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/safetensors.h>
#include <jerboa/models/config.h>
#include <jerboa/ops/tensor.h>

namespace jerboa::models {

/// Layers of a paged cache with this window, which have separate blocks.
struct WindowedBlocks {
  int window = 0;
  int blocks = 0;  ///< for all sequences
};
/// The name of the table through which they are read: "table.512".
std::string table_name(int window);

/// How the tensors that a model keeps between runs are stored. Key/value caches are states "cache.LAYER.k" and
/// "cache.LAYER.v"; recurrent layers have states "cache.LAYER.NAME".
struct CacheOptions {
  int capacity = 0;  ///< positions per sequence; 0: no cache
  /// The longest text that the model is used for. Graphs that share caches must agree on it, whatever their capacities;
  /// 0: the capacity.
  int context = 0;
  /// Layers whose attention has a window keep only the positions it can still reach, in a ring buffer of window + chunk
  /// - 1 entries: a chunk is stored before its first query is computed.
  bool ring = false;
  int chunk = 1;  ///< the maximum number of tokens per sequence in one run
  /// Positions per block of a paged cache, [blocks, heads, block, size], read through the input `table`; 0: a
  /// contiguous cache [batch, heads, capacity, size]. The capacity must be a multiple of it, and ring has no effect.
  int block = 0;
  int blocks = 0;  ///< of a paged cache, for all sequences; 0: enough to fill the table
  /// Layers of a paged cache that do not share the table with the others, so that blocks before their windows can be
  /// reused.
  std::vector<WindowedBlocks> windowed = {};
  /// The type of the key/value cache: f32, f16 or i8 (ir/packed_cache.h). With i8, the inputs of keys and values
  /// (CacheKind::latent) are f16. Recurrent states are f32.
  DType dtype = DType::f32;
  /// Recurrent states are [slots, …], and the input `slots` says which one belongs to a row; 0: one per row, in order.
  int slots = 0;
};

enum class CacheKind : std::uint8_t {
  kv,      ///< keys or values of every position
  ring,    ///< of the positions that a window can still reach
  latent,  ///< the inputs that keys and values are computed from, for every position
  state    ///< of a recurrent layer: one value per sequence, which cannot be truncated
};

/// One tensor that a layer keeps between runs.
struct CacheSpec {
  std::string name;  ///< of the state
  CacheKind kind = CacheKind::kv;
  DType dtype = DType::f32;
  Shape shape;     ///< as allocated
  int window = 0;  ///< in a paged cache: the window of the layers whose table it is read through; 0: `table`
};

/// Tensors by name.
using NamedTensors = std::map<std::string, Tensor, std::less<>>;

/// The inputs of a graph. Text graphs know these tensors, of which only ids is always needed. Positions and lengths are
/// data and time is a symbol, so one graph serves ragged batches, chunked prefill and decode:
///
/// | name      | type                        | meaning |
/// |-----------|-----------------------------|---------|
/// | ids       | i32[batch, time]            | tokens; with a cache, shorter rows are aligned at the end |
/// | positions | i32[batch, time]            | negative for padding; by default 0, 1, …; encoders count themselves |
/// | lengths   | i32[batch]                  | tokens of each sequence so far, those of this run included; of an
/// encoder's rows, which are padded at the end, how many are text |
/// | table     | i32[batch, capacity / block]| with a paged cache: the block of the positions from i * block on.
/// Entries past a sequence's length may be negative. Sequences may share blocks, but not write to the same position |
/// | table.W   | the same                    | for layers with window W, with CacheOptions::windowed |
/// | slots     | i32[batch]                  | with CacheOptions::slots: where a row's recurrent states are |
/// | token_types | i32[batch, time]          | of encoders that tell texts of a pair apart; by default 0 |
struct GraphInputs {
  NamedTensors tensors = {};
  CacheOptions cache = {};
  int last = 0;  ///< logits of this many positions at the end only; 0: of all
  /// The type that matrices are stored in: f32, which is trainable; f16 or bf16; or i8 or i4, quantised
  /// (models/quantise.h).
  DType weights = DType::f32;
  std::vector<CacheSpec>* cache_specs = nullptr;  ///< if set, the specs of the layers' caches are appended to it
  /// If set, the operand that each matrix is multiplied by is added to it, […, in], under the name of the matrix.
  /// Tables and experts are left out.
  NamedTensors* products = nullptr;

  /// An empty tensor if there is none of this name.
  Tensor find(std::string_view name) const;
};

/// Builds a graph's nodes, appended to the traced graph, and returns its results by name.
using GraphBuilder = NamedTensors (*)(const Config& config, const GraphInputs& inputs);

/// The graphs that a family has; null for others.
struct FamilyGraphs {
  GraphBuilder decoder = nullptr;  ///< logits f32[batch, time, vocabulary], hidden f32[batch, time, width]
  GraphBuilder encoder = nullptr;  ///< hidden f32[batch, time, width]
  GraphBuilder tower = nullptr;    ///< hidden f32[batch, patches, width] of pictures or sounds
  GraphBuilder pooler = nullptr;   ///< pooled f32[batch, width] or logits f32[batch, classes], from `hidden`
};

/// A family of models: how to build graphs from config.json. Parameters are named as in Hugging Face files, and tied
/// ones appear once.
struct Family {
  std::string_view model_type;  ///< as in config.json
  FamilyGraphs graphs;
  /// The prefix of every parameter name that older files omit: "transformer."
  std::string_view optional_prefix = {};
  /// The tensors that a checkpoint may hold instead of a parameter [count, rows, columns], to be stacked; none for a
  /// parameter that is stored whole.
  std::vector<std::string> (*parts)(const std::string& parameter, const Shape& shape) = nullptr;
  /// The key of the number of layers in config.json, and the prefix of a layer's parameter names up to its number.
  std::string_view layer_count = "num_hidden_layers", layer_prefix = "model.layers.";
  /// Whether checkpoints hold this matrix as [in, out], so that it must be transposed to be quantised.
  bool (*stored_in_out)(const std::string& parameter) = nullptr;
  /// The first row of the table of positions that a text uses; without it, row 0.
  int (*first_position)(const Config& config) = nullptr;
  bool ternary = false;  ///< checkpoints may hold matrices of -1, 0 and 1, four to a byte
  /// The one quant_method that the config's quantization_config may have; without it, none.
  std::string_view quant_method = {};

  /// The decoder's logits. Throws UsageError if the family has no decoder.
  Tensor logits(const Config& config, const GraphInputs& inputs) const;
  /// The encoder's `hidden`, or without one the decoder's, and, if the model classifies texts, the `logits` of their
  /// classes. Throws UsageError if the family reads no text.
  NamedTensors encode(const Config& config, const GraphInputs& inputs) const;
};

/// Whether the config names an architecture with a head that classifies texts (…ForSequenceClassification).
bool classifies(const Config& config);
/// The names of its classes, by number.
std::vector<std::string> class_names(const Config& config);

/// The caches of a decoder with these options, in the order in which the layers use them.
std::vector<CacheSpec> cache_specs(const Config& config, const CacheOptions& options);

/// One row per family; adding a family adds a file and a row.
std::span<const Family> families();
/// The family that config.json names; throws UsageError that lists the known ones, and FileError if the config says
/// that weights are quantised in a way that the family does not support.
const Family& family_of(const Config& config);

/// Throws FileError if config.json has more layers than the checkpoint. Call it before building a graph from them.
void check_layers(const TensorSource& weights, const Config& config, const Family& family);
/// Throws FileError that names the first few parameters that the checkpoint lacks, or one whose shape differs or that
/// does not hold floats. Call it before allocating what the file asks for. Weights that the graph does not use are
/// ignored.
void check_params(const TensorSource& weights, const Graph& graph, const Family& family);

/// The operands of matrices, for those where they are known: see models/quantise.h.
struct ProductInputs;
using KnownInputs = std::function<const ProductInputs*(const std::string& matrix)>;

/// The weights of a checkpoint for each parameter of a graph, in the graph's type. Call check_params first. Matrices
/// with known inputs are quantised for them.
std::map<std::string, HostTensor> read_params(const TensorSource& weights, const Graph& graph, const Family& family,
                                              const KnownInputs& inputs = {});

/// A parameter's values, valid until the next parameter is read.
struct ParamValues {
  std::string name;
  DType dtype;
  Sizes shape;
  std::span<const std::byte> bytes;
  bool is_in_place = false;  ///< they are in the memory that ReadOptions::memory returned
};

/// The time that threads took, summed over all of them.
struct ReadSeconds {
  double reading = 0, converting = 0;
};

struct ReadOptions {
  KnownInputs inputs = {};
  /// Where a parameter should be stored, so that it need not be copied there; empty if anywhere will do.
  std::function<std::span<std::byte>(const std::string& name)> memory = {};
  ReadSeconds* seconds = nullptr;
};

/// The same, one parameter at a time. All threads share the reading and converting of each, and the next is read while
/// one is used.
void for_each_param(const TensorSource& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use, const ReadOptions& options = {});

}  // namespace jerboa::models
