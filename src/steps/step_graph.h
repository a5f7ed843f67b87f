#pragma once

#include <string>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/ops/tensor.h>
#include <jerboa/transform/precision.h>

// The graphs of a language model: steps over many sequences, and the scores of one text. Only this file calls the model
// families.
namespace jerboa::language {

/// How each row's token is chosen on the device.
enum class Drawing : std::uint8_t {
  none,    ///< logits are read instead
  greedy,  ///< the most likely
  sampled  ///< by each row's settings
};

/// What is returned beside each token.
enum class Logprobs : std::uint8_t {
  none,
  drawn,  ///< its log-probability
  listed  ///< and those of the most likely tokens
};

/// The shape of a step that a program is compiled for, and what it returns.
struct EntryKey {
  int rows = 1;
  int time = 1;   ///< with `is_prompt` any number up to this
  int table = 1;  ///< blocks per row
  int outputs = 1;
  bool is_prompt = false;
  Drawing drawing = Drawing::greedy;
  bool masked = false;
  int penalised = 0, biased = 0;  ///< tokens listed for each output and each row; 0: none
  Logprobs logprobs = Logprobs::none;

  std::string name() const;
};

/// What all graphs of a model have in common.
struct GraphSettings {
  const models::Config& config;
  DType weights = DType::f32, cache = DType::f32;
  int blocks = 0, block = 0;                          ///< of the cache
  std::vector<models::WindowedBlocks> windowed = {};  ///< layers with separate blocks
  int context = 0;                                    ///< the longest text, regardless of the size of a table
  int slots = 0;                                      ///< for recurrent states
  int carried_rows = 0;                   ///< the most rows of a step whose tokens the next one may carry over; 0: none
  Precision precision = Precision::full;  ///< for steps of more than a few tokens
  bool is_gpu = false;
};

/// The tensors that the layers keep between runs.
std::vector<models::CacheSpec> cache_specs(const GraphSettings& settings);

/// The state i32[carried_rows] in which a step leaves the last token of each of its rows for the next.
inline constexpr const char* carried_tokens = "language.tokens";

/// Inputs: ids and positions i32[rows, time], lengths i32[rows], table i32[rows, table], and such a table for each
/// group of layers with windows (models::table_name); slots i32[rows] with recurrent states; carried i32[rows] if
/// tokens are carried over and the step is not a prompt's; those of sampling_graph.h. Outputs: "logits" f32[rows,
/// outputs, vocabulary], and those of draw_tokens, unless none are drawn.
Graph step_graph(const GraphSettings& settings, const EntryKey& key);

/// The logits after each token of one sequence, "output" f32[1, T, vocabulary], T up to `time`.
Graph logits_graph(const GraphSettings& settings, int time, int table);
/// The head's input for each token, "output" f32[1, T, width].
Graph hidden_graph(const GraphSettings& settings, int time, int table);
/// The log-probability of each of "targets" i32[1, T] after the tokens so far, "output" f32[1, T].
Graph score_graph(const GraphSettings& settings, int time, int table);

}  // namespace jerboa::language
