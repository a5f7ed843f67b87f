#include "steps/model_plan.h"

#include <algorithm>
#include <numeric>

#include <jerboa/models/quantise.h>

#include "steps/cache_graphs.h"

namespace jerboa::language {

HostTensor block_numbers(std::span<const serving::Block> blocks, serving::Block padding) {
  std::vector<serving::Block> all(blocks.begin(), blocks.end());
  all.resize(moved_blocks, padding);
  return integers({moved_blocks}, all);
}

ModelPlan::ModelPlan(models::Config config, const PlanOptions& options)
    : config_(std::move(config)), options_(options) {
  check_options(options_);
  context_ = context_of(config_, options_.context);
  const bool narrow = options_.is_gpu && options_.weights == DType::f16;
  cache_ = {.blocks = 1,
            .block = options_.block > 0 ? options_.block : usual_block,
            .dtype = options_.cache.value_or(narrow ? DType::f16 : DType::f32)};
  const EntryKey first{.drawing = Drawing::none};
  outline_ = step_graph(graph_settings(), first);
  vocabulary_size_ = outline_.shape(outline_.find("logits")).back().upper_bound();
  choose_sizes();
  outline_ = step_graph(graph_settings(), first);
  for (const models::CacheSpec& cache : cache_specs(graph_settings()))
    (cache.kind == models::CacheKind::state ? states_ : caches_).push_back(cache);
}

// Of the cache, and of the steps over it.
void ModelPlan::choose_sizes() {
  std::int64_t block_bytes = 0;
  bool has_states = false;
  for (const models::CacheSpec& cache : cache_specs(graph_settings())) {
    has_states |= cache.kind == models::CacheKind::state;
    if (cache.kind != models::CacheKind::state)
      block_bytes += element_count(cache.shape).value() * bits(cache.dtype) / 8;
  }
  const int sequences = sequences_of(options_);
  cache_.blocks = cache_blocks(options_, context_, cache_.block, sequences, block_bytes);
  cache_.bytes = block_bytes * cache_.blocks;
  context_ = static_cast<int>(std::min<std::int64_t>(context_, std::int64_t{cache_.blocks} * cache_.block));
  scheduling_ = scheduling_for(options_, cache_, context_, sequences, static_cast<int>(vocabulary_size_), has_states);
}

GraphSettings ModelPlan::graph_settings() const {
  return {.config = config_,
          .weights = options_.weights,
          .cache = cache_.dtype,
          .blocks = cache_.blocks,
          .block = cache_.block,
          .slots = scheduling_.state_slots > 0 ? scheduling_.state_slots + 2
                                               : 0,  // for texts that are scored, and for padding
          .carried_rows = scheduling_.pipelined ? scheduling_.max_rows : 0,
          .precision = options_.precision,
          .is_gpu = options_.is_gpu};
}

std::int64_t ModelPlan::parameters() const {
  std::int64_t count = 0;
  for (const TensorInfo& tensor : outline_.tensors)
    if (tensor.storage == Storage::param && !tensor.name.ends_with(models::scales_suffix) &&
        !tensor.name.ends_with(models::mins_suffix))
      count += element_count(tensor.type.shape).upper_bound();
  return count;
}

std::int64_t ModelPlan::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : outline_.tensors)
    if (tensor.storage == Storage::param)
      bytes += element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8;
  return bytes;
}

Entry ModelPlan::entry_of(const EntryKey& key) const {
  return {key.name(), [this, key] { return step_graph(graph_settings(), key); }};
}

std::vector<Entry> ModelPlan::usual_entries(const SamplerOptions& sampling) const {
  const Drawing drawing = sampling.temperature == 0 ? Drawing::greedy
                          : samples_on_device()     ? Drawing::sampled
                                                    : Drawing::none;
  const int rows = scheduling_.row_buckets.front(), table = scheduling_.block_buckets.front();
  std::vector<Entry> entries{entry_of({.rows = rows, .table = table, .drawing = drawing})};
  if (!options_.deterministic && scheduling_.chunk > 1)
    entries.push_back(entry_of(
        {.rows = rows, .time = prompt_time(scheduling_, rows), .table = table, .is_prompt = true, .drawing = drawing}));
  return entries;
}

std::vector<Run> ModelPlan::runs_of(const serving::Step& step) const {
  std::vector<Run> runs;
  add_state_copies(runs, step.state_copies);
  add_block_copies(runs, step.copies);
  EntryKey key{.rows = step.rows,
               .time = step.time,
               .table = step.blocks,
               .outputs = step.outputs,
               .is_prompt = step.time > 1 && step.outputs == 1,
               .drawing = drawing_of(step),
               .masked = !step.mask.empty()};
  if (key.is_prompt) key.time = prompt_time(scheduling_, step.rows);
  if (key.drawing == Drawing::none) key.masked = false;
  runs.push_back({entry_of(key),
                  inputs_of(step, key, scheduling_.pipelined && !key.is_prompt, scheduling_.state_slots + 1),
                  key.drawing != Drawing::none});
  return runs;
}

void ModelPlan::add_block_copies(std::vector<Run>& runs, std::span<const serving::BlockCopy> copies) const {
  if (copies.empty()) return;
  for (const auto run : independent_runs(copies)) {
    std::vector<serving::Block> from, to;
    for (const serving::BlockCopy& copy : run) {
      from.push_back(copy.from);
      to.push_back(copy.to);
    }
    runs.push_back({{"copy blocks", [this] { return copy_graph(caches_); }},
                    {{"from", block_numbers(from, 0)}, {"to", block_numbers(to, -1)}}});
  }
}

// All of them at once: what each slot holds after the copies, in terms of what it holds now.
void ModelPlan::add_state_copies(std::vector<Run>& runs, std::span<const serving::SlotCopy> copies) const {
  if (copies.empty()) return;
  const int slots = graph_settings().slots;
  std::vector<std::int32_t> from(static_cast<std::size_t>(slots));
  std::iota(from.begin(), from.end(), 0);
  for (const serving::SlotCopy& copy : copies)
    from[static_cast<std::size_t>(copy.to)] =
        copy.from == serving::no_slot ? serving::no_slot : from[static_cast<std::size_t>(copy.from)];
  runs.push_back({{"copy states", [this, slots] { return rearrange_graph(states_, slots); }},
                  {{"from", integers({slots}, from)}}});
}

}  // namespace jerboa::language
