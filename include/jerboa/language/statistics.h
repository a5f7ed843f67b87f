#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace jerboa::language {

/// How long it took to load a model: opening, planning, weights and finishing, one after another. Weights are read,
/// converted and uploaded concurrently while programs are compiled, so those times do not add up.
struct LoadSeconds {
  double opening = 0;                  ///< configuration, tokenizer and the headers of weights
  double planning = 0;                 ///< sizes and graphs, and allocating their memory
  double weights = 0;                  ///< until all are on the device
  double reading = 0, converting = 0;  ///< of the weights: summed over all threads
  double uploading = 0;                ///< of the weights: copying them to a device with separate memory
  double compiling = 0;                ///< the programs that nearly every text needs, from planning on
  double finishing = 0;                ///< after the weights: the rest of compiling, and clearing the cache
  double whole = 0;
};

/// The blocks of layers with a window, if others see more.
struct WindowedStatistics {
  int window = 0;
  int blocks = 0, used = 0, peak = 0;
  int cached = 0;  ///< used only by texts that have ended
  std::int64_t evictions = 0;
};

/// What a runner has done so far.
struct Statistics {
  std::int64_t submitted = 0, refused = 0, ended = 0, preempted = 0;  ///< texts
  std::int64_t steps = 0, tokens = 0, padding = 0;  ///< computed for prompts, text and guesses; computed in vain
  std::int64_t prompt_tokens = 0, reused = 0;       ///< of which this many were in the cache
  std::int64_t drafted = 0, accepted = 0;           ///< guesses
  double seconds = 0;                               ///< with at least one step on the device
  std::int64_t texts = 0;                           ///< that ended after at least one token
  double first_token_seconds = 0;                   ///< the mean time to their first token, including waiting
  double longest_first_token_seconds = 0;
  std::int64_t generated = 0;                ///< tokens after prompts, of all texts
  std::map<int, std::int64_t> decode_batch;  ///< number of decode steps by number of rows, without padding
  std::int64_t dispatches = 0;               ///< kernels of all steps
  int cache_blocks = 0, used_blocks = 0, peak_blocks = 0;
  int cached_blocks = 0;  ///< of texts that have ended, kept for reuse
  std::int64_t evictions = 0;
  std::vector<WindowedStatistics> windowed;  ///< layers with separate blocks; the others use those above
  std::int64_t cache_bytes = 0, weight_bytes = 0;
  std::int64_t activation_bytes = 0;  ///< of the entry that needs the most

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(generated) / seconds : 0; }
  double mean_batch() const;
  /// The fraction of blocks that texts in progress use, in the layers where it is largest.
  double cache_usage() const;
  /// The fraction of prompt tokens that were in the cache, and of guesses that the model confirmed.
  double hit_rate() const;
  double acceptance() const;
  double dispatches_per_token() const;
};

/// A human-readable table of all this.
std::string print(const Statistics& statistics);

}  // namespace jerboa::language
