#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>
#include <jerboa/models/family.h>
#include <jerboa/serving/scheduler.h>

#include "steps/model_sizes.h"
#include "steps/step_graph.h"
#include "steps/step_inputs.h"

namespace jerboa::language {

/// Something to run, with a name under which a host compiles it once.
struct Entry {
  std::string name;
  std::function<Graph()> graph;
};

/// One run of an entry.
struct Run {
  Entry entry;
  RunInputs inputs;
  std::vector<std::string> reads = {};  ///< the outputs to read
};

/// The plan of what a language model runs, made without a device: the sizes of its cache and of its steps, and for each
/// step of a Scheduler the graphs and inputs that compute it. A host compiles and runs them; the native one and the
/// browser's follow the same plan. It refers to itself, so it must not be moved.
class ModelPlan {
 public:
  /// Throws UsageError if an option is out of range.
  ModelPlan(models::Config config, const PlanOptions& options);
  ModelPlan(const ModelPlan&) = delete;

  const models::Config& config() const { return config_; }
  DType weights() const { return options_.weights; }
  bool is_deterministic() const { return options_.deterministic; }
  /// Whether the device draws sampled tokens; otherwise it finds only the most likely one.
  bool samples_on_device() const { return language::samples_on_device(options_); }
  int context() const { return context_; }
  const CacheSize& cache() const { return cache_; }
  const serving::SchedulerOptions& scheduling() const { return scheduling_; }
  std::int64_t vocabulary_size() const { return vocabulary_size_; }  ///< the number of logits
  /// A step of one token, which has all parameters and states.
  const Graph& outline() const { return outline_; }
  /// The caches of positions, and below those of recurrent layers.
  const std::vector<models::CacheSpec>& caches() const { return caches_; }
  /// The caches of the layers of each group with windows.
  const std::vector<std::vector<models::CacheSpec>>& windowed_caches() const { return windowed_caches_; }
  const std::vector<models::CacheSpec>& states() const { return states_; }
  std::int64_t parameters() const;
  std::int64_t weight_bytes() const;

  GraphSettings graph_settings() const;
  /// The entries that nearly every text needs, if texts are sampled in this way.
  std::vector<Entry> usual_entries(const SamplerOptions& sampling) const;
  /// The runs of a step in order: its copies, and last the step itself.
  std::vector<Run> runs_of(const serving::Step& step) const;

 private:
  void choose_groups();
  void choose_sizes();
  Entry entry_of(const EntryKey& key) const;
  static void add_copies(std::vector<Run>& runs, const Entry& entry, std::span<const serving::BlockCopy> copies);

  models::Config config_;
  PlanOptions options_;
  int context_ = 0;
  CacheSize cache_;
  serving::SchedulerOptions scheduling_;
  std::int64_t vocabulary_size_ = 0;  // may exceed the tokenizer's vocabulary
  int window_ = 0;                    // of the layers that see the most, if they have one
  std::vector<models::CacheSpec> caches_, states_;
  std::vector<std::vector<models::CacheSpec>> windowed_caches_;
  Graph outline_;
};

/// Block numbers in the form that the graphs of cache_graphs.h take.
HostTensor block_numbers(std::span<const serving::Block> blocks, serving::Block padding);

}  // namespace jerboa::language
