#include "steps/model_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include <jerboa/models/quantise.h>

#include "steps/cache_graphs.h"

namespace jerboa::language {
namespace {

constexpr int reserved_slots = 2;  // used by the scheduler: for texts that are scored, and for padding

// The windows of all attentions, largest first; 0 stands for attention without one, or with one that no text exceeds.
std::vector<int> windows_of(const Graph& graph, int context) {
  std::vector<int> windows;
  const auto reach = [](int window) { return window == 0 ? std::numeric_limits<int>::max() : window; };
  for (const Node& node : graph.nodes) {
    if (node.op != Op::attention) continue;
    int window = node.as<AttentionAttrs>().window;
    if (window >= context) window = 0;
    auto at = windows.begin();
    while (at != windows.end() && reach(*at) > reach(window)) ++at;
    if (at == windows.end() || *at != window) windows.insert(at, window);
  }
  return windows;
}

}  // namespace

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
  choose_groups();
  choose_sizes();
  outline_ = step_graph(graph_settings(), first);
  windowed_caches_.resize(cache_.windowed.size());
  for (const models::CacheSpec& cache : cache_specs(graph_settings())) {
    const auto group = std::find_if(cache_.windowed.begin(), cache_.windowed.end(),
                                    [&](const auto& layers) { return layers.window == cache.window; });
    if (cache.kind == models::CacheKind::state)
      states_.push_back(cache);
    else if (group == cache_.windowed.end())
      caches_.push_back(cache);
    else
      windowed_caches_[static_cast<std::size_t>(group - cache_.windowed.begin())].push_back(cache);
  }
}

// Layers that see less than others keep less, in separate blocks. States cannot go back to where a window ends.
void ModelPlan::choose_groups() {
  const std::vector<models::CacheSpec> specs = cache_specs(graph_settings());
  const auto is_state = [](const models::CacheSpec& cache) { return cache.kind == models::CacheKind::state; };
  if (std::any_of(specs.begin(), specs.end(), is_state)) return;
  const std::vector<int> windows = windows_of(outline_, context_);
  for (std::size_t i = 1; i < windows.size(); ++i) cache_.windowed.push_back({windows[i], 1});
  window_ = windows.empty() ? 0 : windows[0];
}

// Chooses the sizes of the cache, and of the steps over it.
void ModelPlan::choose_sizes() {
  std::int64_t slot_bytes = 0;
  std::vector<BlockBytes> groups{{}};
  for (const models::WindowedBlocks& layers : cache_.windowed) groups.push_back({layers.window, 0});
  for (const models::CacheSpec& cache : cache_specs(graph_settings())) {
    const std::int64_t bytes = element_count(cache.shape).value() * bits(cache.dtype) / 8;
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const BlockBytes& layers) { return layers.window == cache.window; });
    (cache.kind == models::CacheKind::state ? slot_bytes : group->bytes) += bytes;
  }
  const auto [sequences, slots] = state_sizes(options_, slot_bytes, groups[0].bytes > 0);
  const std::int64_t state_bytes = slots > 0 ? slot_bytes * (slots + reserved_slots) : 0;
  choose_blocks(options_, context_, sequences, groups, state_bytes, cache_);
  context_ = static_cast<int>(std::min<std::int64_t>(context_, std::int64_t{cache_.blocks} * cache_.block));
  scheduling_ = scheduling_for(options_, cache_, context_, sequences, static_cast<int>(vocabulary_size_), slots);
  scheduling_.window = window_;
}

GraphSettings ModelPlan::graph_settings() const {
  return {.config = config_,
          .weights = options_.weights,
          .cache = cache_.dtype,
          .blocks = cache_.blocks,
          .block = cache_.block,
          .windowed = cache_.windowed,
          .context = context_,
          .slots = scheduling_.state_slots > 0 ? scheduling_.state_slots + reserved_slots : 0,
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
  std::vector<serving::BlockCopy> state_copies;
  for (const serving::SlotCopy& copy : step.state_copies) state_copies.push_back({copy.from, copy.to});
  add_copies(runs, {"copy states", [this] { return copy_graph(states_); }}, state_copies);
  add_copies(runs, {"copy blocks", [this] { return copy_graph(caches_); }}, step.copies);
  for (std::size_t group = 0; group < step.windowed.size(); ++group)
    add_copies(
        runs,
        {fmt::format("copy blocks of group {}", group), [this, group] { return copy_graph(windowed_caches_[group]); }},
        step.windowed[group].copies);
  EntryKey key{.rows = step.rows,
               .time = step.time,
               .table = step.blocks,
               .outputs = step.outputs,
               .is_prompt = step.time > 1 && step.outputs == 1,
               .drawing = drawing_of(step),
               .masked = !step.mask.empty(),
               .penalised = step.sampling.seen.size,
               .biased = step.sampling.bias.size,
               .logprobs = logprobs_of(step)};
  if (key.is_prompt) key.time = prompt_time(scheduling_, step.rows);
  runs.push_back(
      {entry_of(key),
       inputs_of(step, key, scheduling_.pipelined && !key.is_prompt, scheduling_.state_slots + 1, cache_.windowed),
       outputs_to_read(step, key)});
  return runs;
}

void ModelPlan::add_copies(std::vector<Run>& runs, const Entry& entry, std::span<const serving::BlockCopy> copies) {
  for (const auto run : independent_runs(copies)) {
    std::vector<serving::Block> from, to;
    for (const serving::BlockCopy& copy : run) {
      from.push_back(copy.from);
      to.push_back(copy.to);
    }
    runs.push_back({entry, {{"from", block_numbers(from, 0)}, {"to", block_numbers(to, -1)}}});
  }
}

}  // namespace jerboa::language
