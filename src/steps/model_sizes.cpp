#include "steps/model_sizes.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/integers.h"

namespace jerboa::language {
namespace {

constexpr int usual_context = 4096;  // for models that allow more than most users need
// Fixed budgets, because WebGPU does not report how much memory is free.
constexpr std::int64_t cpu_cache_bytes = std::int64_t{256} << 20, gpu_cache_bytes = std::int64_t{1} << 30;
// Large chunks keep a GPU's matrix units busy; the CPU gains nothing from more.
constexpr int gpu_chunk = 512, cpu_chunk = 128;
constexpr int gpu_chunks = 4;  // of different prompts per step
constexpr int gpu_sequences = 64, cpu_sequences = 16;
// Snapshots of recurrent states at the end of prompts, for other texts with the same prefix.
constexpr int usual_snapshots = 16, fewest_snapshots = 4;
constexpr int fewest_sequences = 8;  // whatever the size of their states

std::int64_t cache_budget(const PlanOptions& options) { return options.is_gpu ? gpu_cache_bytes : cpu_cache_bytes; }

void require(bool holds, const char* option, std::int64_t value, const char* wanted) {
  if (!holds) throw UsageError(fmt::format("{} must be {}, not {}", option, wanted, value));
}

std::vector<int> powers_of_two(int most) {
  std::vector<int> sizes;
  for (int size = 1; size < most; size *= 2) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

// Programs for prompts take any length, those for drafts one length each, which is short.
std::vector<int> time_sizes(int chunk) {
  constexpr int longest_draft = 16;
  std::vector<int> sizes = powers_of_two(std::min(chunk, longest_draft));
  for (int size = longest_draft + 1; size <= chunk; ++size) sizes.push_back(size);
  return sizes;
}

// On a GPU the work of attention is split by the table's size, not by the sequences' lengths.
std::vector<int> table_sizes(int most, int block, bool is_gpu) {
  std::vector<int> sizes;
  if (is_gpu)
    for (int tokens = 512; tokens / block < most; tokens *= 4) sizes.push_back(std::max(1, tokens / block));
  sizes.push_back(most);
  return sizes;
}

bool is_pipelined(const PlanOptions& options) { return options.pipelined.value_or(options.is_gpu); }

}  // namespace

void check_options(const PlanOptions& options) {
  require(options.chunk >= 0, "chunk", options.chunk, "at least 1, or 0 for a value that suits the device");
  require(options.sequences >= 0, "sequences", options.sequences, "at least 1, or 0 for a value that suits the device");
  require(options.cache_tokens >= 0, "cache_tokens", options.cache_tokens, "at least 1, or 0 for the default");
  if (!is_float(options.weights) && options.weights != DType::i8 && options.weights != DType::i4)
    throw UsageError(fmt::format("weights can be f32, f16, bf16, int8 or int4, not {}", name(options.weights)));
  require(options.block >= 0, "block", options.block, "at least 1, or 0 for the default");
}

int longest_context(const models::Config& config) {
  // Recurrent models specify no limit.
  return config.size("max_position_embeddings", config.size("n_positions", models::Config::largest_size));
}

int context_of(const models::Config& config, int requested) {
  const int most = longest_context(config);
  if (requested < 0 || requested > most)
    throw UsageError(
        fmt::format("{}: the model supports at most {} tokens of context, not {}", config.origin(), most, requested));
  return requested > 0 ? requested : std::min(most, usual_context);
}

bool samples_on_device(const PlanOptions& options) { return options.device_sampling.value_or(options.is_gpu); }

int sequences_of(const PlanOptions& options) {
  return options.sequences > 0 ? options.sequences : options.is_gpu ? gpu_sequences : cpu_sequences;
}

StateSizes state_sizes(const PlanOptions& options, std::int64_t slot_bytes, bool has_blocks) {
  StateSizes out{.sequences = sequences_of(options)};
  if (slot_bytes == 0) return out;
  const auto within_budget =
      static_cast<int>(std::min<std::int64_t>(cache_budget(options) / (has_blocks ? 2 : 1) / slot_bytes, 1 << 20));
  if (options.sequences == 0)
    out.sequences = std::min(out.sequences, std::max(fewest_sequences, within_budget * 2 / 3));
  out.slots = std::clamp(within_budget, out.sequences + fewest_snapshots, 2 * out.sequences + usual_snapshots);
  return out;
}

namespace {

int chunk_of(const PlanOptions& options, int context) {
  return std::min(options.chunk > 0 ? options.chunk : options.is_gpu ? gpu_chunk : cpu_chunk, context);
}

// The blocks of layers with a window: the same fraction of what all texts need at most as the other layers have, but
// enough for as many short texts as may run at once. More than the other layers have would be useless.
int windowed_blocks(const PlanOptions& options, int context, int sequences, int block, int window, int others) {
  const int short_text = std::clamp(context / 16, 1, 256);
  const serving::SchedulerOptions sizes{
      .block_size = block, .chunk = chunk_of(options, context), .pipelined = is_pipelined(options)};
  const std::int64_t one = serving::most_windowed_blocks(sizes, window), whole = detail::divide_up(context, block);
  const std::int64_t share = detail::divide_up(others * one, whole);
  const std::int64_t several = std::int64_t{sequences} * detail::divide_up(short_text, block);
  return static_cast<int>(std::min<std::int64_t>(others, std::max({one, share, several})));
}

}  // namespace

void choose_blocks(const PlanOptions& options, int context, int sequences, std::span<const BlockBytes> groups,
                   std::int64_t spent_bytes, CacheSize& cache) {
  const auto choose = [&](std::int64_t blocks) {
    cache.blocks = static_cast<int>(blocks);
    cache.windowed.clear();
    cache.bytes = spent_bytes + blocks * groups.front().bytes;
    for (const BlockBytes& group : groups.subspan(1)) {
      const int count = windowed_blocks(options, context, sequences, cache.block, group.window, cache.blocks);
      cache.windowed.push_back({group.window, count});
      cache.bytes += count * group.bytes;
    }
  };
  const auto blocks_for = [&](std::int64_t tokens) { return detail::divide_up(tokens, cache.block); };
  if (options.cache_tokens > 0) return choose(blocks_for(options.cache_tokens));
  std::int64_t least = blocks_for(context), most = least * sequences;
  if (groups.front().bytes == 0) return choose(most);
  while (least < most) {  // the most that fit into the budget
    const std::int64_t middle = (least + most + 1) / 2;
    choose(middle);
    (cache.bytes <= cache_budget(options) ? least : most) = cache.bytes <= cache_budget(options) ? middle : middle - 1;
  }
  choose(least);
}

serving::SchedulerOptions scheduling_for(const PlanOptions& options, const CacheSize& cache, int context, int sequences,
                                         int vocabulary, int state_slots) {
  const bool is_gpu = options.is_gpu;
  serving::SchedulerOptions out;
  out.blocks = cache.blocks;
  out.block_size = cache.block;
  out.context = context;
  out.max_rows = sequences;
  for (const models::WindowedBlocks& layers : cache.windowed) out.windowed.push_back({layers.window, layers.blocks});
  out.chunk = chunk_of(options, context);
  out.prefill_tokens = std::max(is_gpu ? gpu_chunks * out.chunk : out.chunk, out.max_rows);
  out.prefill_cells = 2 * out.prefill_tokens;
  out.pipelined = is_pipelined(options);
  out.vocabulary = vocabulary;
  out.device_masks = true;
  out.device_penalises = samples_on_device(options);
  out.state_slots = state_slots;
  out.row_buckets = powers_of_two(sequences);
  out.time_buckets = time_sizes(out.chunk);
  out.block_buckets = table_sizes(static_cast<int>(detail::divide_up(context, cache.block)), cache.block, is_gpu);
  if (options.deterministic) {
    out.mixed_time = 1;
    out.always_mixed = true;
    out.row_buckets = {sequences};
    out.block_buckets = {out.block_buckets.back()};
  }
  return out;
}

int prompt_time(const serving::SchedulerOptions& options, int rows) {
  return rows == 1 ? options.chunk : std::min(options.chunk, options.prefill_cells / rows);
}

}  // namespace jerboa::language
