#pragma once

#include <cstdint>

#include <jerboa/language/model.h>

// The sizes that a language model runs with where the user leaves them open.
namespace jerboa::language {

inline constexpr int usual_block = 32;

/// Throws UsageError if an option is out of range.
void check_options(const LanguageModelOptions& options);

/// The maximum length of a sequence. Throws UsageError if the model does not support as much.
int context_of(const models::Config& config, int requested);

/// How many sequences run at once.
int sequences_of(const LanguageModelOptions& options, bool is_gpu);

/// The blocks of the cache, each of which takes `block_bytes` in all layers together.
int cache_blocks(const LanguageModelOptions& options, int context, int block, int sequences, std::int64_t block_bytes,
                 bool is_gpu);

serving::SchedulerOptions scheduling_for(const LanguageModelOptions& options, const CacheSize& cache, int context,
                                         int sequences, int vocabulary, bool is_gpu, bool has_states);

/// The most tokens per row of a step of prompts that has this many rows.
int prompt_time(const serving::SchedulerOptions& options, int rows);

}  // namespace jerboa::language
