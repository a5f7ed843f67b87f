#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <jerboa/base/lowest_score.h>
#include <jerboa/serving/page_table.h>
#include <jerboa/serving/state_slots.h>

namespace jerboa::serving {

using SequenceId = std::int64_t;

enum class StepKind : std::uint8_t {
  prefill,  ///< rows of prompt tokens
  decode,   ///< the next token of each row, with drafted ones if there are any
  mixed     ///< both
};

/// What the host reads back for a row.
enum class Wanted : std::uint8_t { nothing, token, logits };

/// The work of a row of a step: tokens start … start + count - 1 of a sequence.
struct Row {
  SequenceId id = 0;
  std::int64_t start = 0;
  int count = 0;
  int drafts = 0;  ///< how many of them, at the end, are guesses that the results verify
  Wanted wanted = Wanted::nothing;
  std::optional<int> logprobs = {};  ///< with the token, its log-probability and those of this many of the most likely
};

/// Tokens with a value each, in lists of one length: shorter ones are padded with token 0 and the value 0.
struct TokenValues {
  int size = 0;  ///< of each list; 0 if all are empty
  std::vector<std::int32_t> tokens;
  std::vector<float> values;
};

/// How each row's token is drawn on the device, one value per row; the meanings are those of SamplerOptions. A row
/// whose temperature is 0 takes the most likely token, as do rows whose token is not wanted.
struct SamplingInputs {
  std::vector<float> temperature, top_p, min_p;
  std::vector<std::int32_t> top_k;
  std::vector<float> repetition_penalty, presence_penalty, frequency_penalty;
  /// [rows, outputs, size]: the tokens that penalties apply to, and how often each was generated; only_in_prompt for
  /// tokens of the prompt alone. A carried token is not included: it counts once more.
  TokenValues seen;
  /// [rows, size]: added to logits, before penalties; banned_bias for tokens that must not be drawn.
  TokenValues bias;
  std::vector<std::uint32_t> seed;  ///< [rows, 2]: the low and the high word
  /// The number of tokens drawn for the sequence so far: with the seed, all that a draw depends on, so that a text does
  /// not depend on what else is in the batch. A row with drafts draws once for each of its outputs, counting up.
  std::vector<std::uint32_t> draw;
};

inline constexpr float only_in_prompt = 0.5f;
inline constexpr auto banned_bias = static_cast<float>(lowest_score);

/// The part of a step for layers with a window, which have separate blocks.
struct WindowedStep {
  std::vector<std::int32_t> table;  ///< [rows, blocks], as Step::table
  std::vector<BlockCopy> copies;
};

/// One run of a model over a batch, as plain arrays in row-major order. Sizes are rounded up to buckets, so that few
/// programs are needed. Rows are aligned at their ends: the last column holds each row's last token, and columns before
/// its first are padding, as are rows from plan.size() on.
///
/// A host makes state_copies and all copies first, each list in order, then runs the step; it executes steps in the
/// order in which next() returned them. Every layer writes all rows to its cache before it reads any, because a row may
/// attend to another row of the same sequence.
struct Step {
  std::int64_t number = 0;
  StepKind kind = StepKind::decode;
  int rows = 0, time = 0, blocks = 0;
  int outputs = 1;  ///< results are wanted for this many columns at the end

  std::vector<std::int32_t> ids;        ///< [rows, time]
  std::vector<std::int32_t> positions;  ///< [rows, time]; -1 for padding
  std::vector<std::int32_t> lengths;    ///< [rows]: the keys that a row may see; 0 for padding
  std::vector<std::int32_t> table;      ///< [rows, blocks]: the blocks of the cache; 0 if there is none
  /// [rows]: the row of the previous step whose token, not yet read by the host, is this row's last id; or -1.
  std::vector<std::int32_t> carried;
  std::vector<std::int32_t> states;  ///< [rows]: the slots of recurrent states, or no_slot; empty if there are none
  SamplingInputs sampling;
  /// [rows, words]: one bit for each token that a row may draw, the lowest first; empty if no row is restricted.
  std::vector<std::uint32_t> mask;

  std::vector<SlotCopy> state_copies;
  std::vector<BlockCopy> copies;
  std::vector<WindowedStep> windowed;  ///< by group: SchedulerOptions::windowed
  std::vector<Row> plan;               ///< the rows that are not padding
};

/// The data that a host reads back from a step.
struct StepResults {
  /// [rows, outputs]: the token after each of the last columns; read for rows that want tokens.
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs = {};  ///< of these tokens; read for rows that want them, as are the next two
  /// [rows, outputs, n]: the most likely tokens in descending order, at most n, and their log-probabilities.
  std::vector<std::int32_t> likeliest = {};
  std::vector<float> likeliest_logprobs = {};
  /// For each row that wants logits, those of its last columns, [outputs, vocabulary]; empty for other rows.
  std::vector<std::vector<float>> logits;
};

}  // namespace jerboa::serving
