#pragma once

#include <cstdint>
#include <optional>
#include <span>

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

/// The maximum length of a sequence that the model supports.
int longest_context(const models::Config& config);
/// The maximum length of a sequence. Throws UsageError if the model does not support as much.
int context_of(const models::Config& config, int requested);

/// Whether the device draws tokens; otherwise only the likeliest is found there.
bool samples_on_device(const PlanOptions& options);

/// How many sequences run at once.
int sequences_of(const PlanOptions& options);

/// For models with recurrent layers.
struct StateSizes {
  int sequences = 0;  ///< that run at once: fewer if their states are large and the user leaves it open
  int slots = 0;      ///< one for each of them, others for snapshots; 0 if there are no states
};
/// A slot takes `slot_bytes` in all layers together; `has_blocks`: some layers have keys and values, which share the
/// budget.
StateSizes state_sizes(const PlanOptions& options, std::int64_t slot_bytes, bool has_blocks);

/// What a block takes in all layers of a group together.
struct BlockBytes {
  int window = 0;  ///< 0: what all layers without a window, or with the largest, keep
  std::int64_t bytes = 0;
};
/// Chooses the blocks of the cache: of the first group of layers, and of each group with windows. States have taken
/// `spent_bytes` of the budget. `cache` says how many tokens a block has.
void choose_blocks(const PlanOptions& options, int context, int sequences, std::span<const BlockBytes> groups,
                   std::int64_t spent_bytes, CacheSize& cache);

serving::SchedulerOptions scheduling_for(const PlanOptions& options, const CacheSize& cache, int context, int sequences,
                                         int vocabulary, int state_slots);

/// The most tokens per row of a step of prompts that has this many rows.
int prompt_time(const serving::SchedulerOptions& options, int rows);

}  // namespace jerboa::language
