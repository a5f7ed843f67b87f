#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <jerboa/models/config.h>
#include <jerboa/serving/scheduler.h>
#include <jerboa/steps/cache_size.h>
#include <jerboa/transform/precision.h>

// The sizes of a language model's cache and steps where the user leaves them open.
namespace jerboa::language {

/// The options of a user; the meanings are those of LanguageModelOptions.
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
/// The maximum length of a sequence. Throws UsageError if the model does not support the requested one.
int context_of(const models::Config& config, int requested);

/// Whether the device draws sampled tokens; otherwise it finds only the most likely one.
bool samples_on_device(const PlanOptions& options);

/// How many sequences run at once.
int sequences_of(const PlanOptions& options);

/// For models with recurrent layers.
struct StateSizes {
  int sequences = 0;  ///< that run at once: fewer if their states are large and the user leaves it open
  int slots = 0;      ///< one for each sequence, others for snapshots; 0 if there are no states
};
/// A slot takes `slot_bytes` in all layers together; `has_blocks`: some layers have keys and values, which share the
/// budget.
StateSizes state_sizes(const PlanOptions& options, std::int64_t slot_bytes, bool has_blocks);

/// The size of a block in all layers of a group together.
struct BlockBytes {
  int window = 0;  ///< 0: layers without a window, or with the largest
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
