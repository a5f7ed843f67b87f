#pragma once

#include <cstdint>
#include <optional>

#include <jerboa/models/config.h>
#include <jerboa/serving/scheduler.h>
#include <jerboa/steps/cache_size.h>
#include <jerboa/transform/precision.h>

// The sizes that a language model runs with where the user leaves them open.
namespace jerboa::language {

/// What a user may choose; the meanings are those of LanguageModelOptions.
struct PlanOptions {
  DType weights = DType::f32;
  std::optional<DType> cache = {};
  Precision precision = Precision::full;
  int context = 0, chunk = 0, sequences = 0, block = 0;
  std::int64_t cache_tokens = 0;
  std::optional<bool> pipelined = {}, device_sampling = {};
  bool deterministic = false;
  bool is_gpu = false;  ///< what the model runs on
};

inline constexpr int usual_block = 32;

/// Throws UsageError if an option is out of range.
void check_options(const PlanOptions& options);

/// The maximum length of a sequence. Throws UsageError if the model does not support as much.
int context_of(const models::Config& config, int requested);

/// How many sequences run at once.
int sequences_of(const PlanOptions& options);

/// The blocks of the cache, each of which takes `block_bytes` in all layers together.
int cache_blocks(const PlanOptions& options, int context, int block, int sequences, std::int64_t block_bytes);

serving::SchedulerOptions scheduling_for(const PlanOptions& options, const CacheSize& cache, int context, int sequences,
                                         int vocabulary, bool has_states);

/// The most tokens per row of a step of prompts that has this many rows.
int prompt_time(const serving::SchedulerOptions& options, int rows);

}  // namespace jerboa::language
