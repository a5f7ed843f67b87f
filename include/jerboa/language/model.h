#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/language/options.h>
#include <jerboa/language/statistics.h>
#include <jerboa/models/family.h>
#include <jerboa/runtime/session.h>
#include <jerboa/serving/scheduler.h>
#include <jerboa/steps/cache_size.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa::detail {
struct ModelFiles;
}

namespace jerboa::language {

class ModelPlan;

/// A decoder on a device: weights, caches, and the programs compiled for the batches that occurred so far. Shared and
/// thread-safe; a Runner drives it.
class Model {
 public:
  /// A Hugging Face folder or a .gguf file, as in LanguageModel::load.
  static std::shared_ptr<Model> load(const std::filesystem::path& path, const LanguageModelOptions& options = {});
  /// The same from files that are already open.
  static std::shared_ptr<Model> load(detail::ModelFiles files, const LanguageModelOptions& options);
  ~Model();

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::optional<ChatTemplate>& chat_template() const { return template_; }
  const std::vector<int>& end_tokens() const { return end_tokens_; }
  const SamplerOptions& recommended_sampling() const { return sampling_; }
  /// The bytes of every token, for constraints; built on first use.
  std::shared_ptr<const Vocabulary> vocabulary() const;
  std::int64_t vocabulary_size() const;  ///< the number of logits
  int context() const;
  const CacheSize& cache() const;
  /// The settings of a Runner's schedule: sizes of the cache, of batches and of chunks.
  const serving::SchedulerOptions& scheduling() const;
  bool is_deterministic() const;
  /// Whether the device draws sampled tokens; otherwise it finds only the most likely one.
  bool samples_on_device() const;
  std::int64_t parameters() const;
  std::int64_t weight_bytes() const;
  const LoadSeconds& load_seconds() const { return load_seconds_; }
  /// The memory that the largest of the programs so far needs while it runs.
  std::int64_t activation_bytes() const;
  /// Differs between models whose norms or sizes differ.
  std::string fingerprint() const;
  Session& session() { return session_; }

  /// A step that was submitted to the device.
  class Running {
   public:
    /// Waits for the results.
    serving::StepResults read(const serving::Step& step) const;
    int dispatches() const { return dispatches_; }

   private:
    friend class Model;
    Result result_;
    std::vector<std::string> reads_;
    int dispatches_ = 0;
  };
  /// Makes the step's copies and starts it, compiling a program for its shape first if necessary.
  Running run(const serving::Step& step);

  /// The log-probability of each of `next` after the tokens up to the one at the same index of `tokens`, which are
  /// written to a table's blocks from position `start` on.
  std::vector<float> score(const serving::TextBlocks& blocks, std::int64_t start, std::span<const std::int32_t> tokens,
                           std::span<const std::int32_t> next);
  /// The logits after each of `tokens`, [tokens, vocabulary], in the same way. With recurrent layers, only one text at
  /// a time can be scored, which ReservedBlocks ensures.
  HostTensor logits(const serving::TextBlocks& blocks, std::int64_t start, std::span<const std::int32_t> tokens);

  /// The last layer's output for each of `tokens`, after its norm, [tokens, width], in the same way.
  HostTensor hidden(const serving::TextBlocks& blocks, std::int64_t start, std::span<const std::int32_t> tokens);

  /// Blocks of layers as tensors [n, heads, block, size] by the cache's names, and back into other blocks: those of a
  /// group with windows (SchedulerOptions::windowed), or of all other layers.
  TensorMap read_blocks(std::span<const serving::Block> blocks, std::optional<std::size_t> group = {});
  void write_blocks(std::span<const serving::Block> blocks, const TensorMap& values,
                    std::optional<std::size_t> group = {});
  /// The same for slots of recurrent states.
  TensorMap read_states(std::span<const std::int32_t> slots);
  void write_states(std::span<const std::int32_t> slots, const TensorMap& values);

  /// Throws UsageError if a token is not one of the model's.
  void check_tokens(std::span<const std::int32_t> tokens) const;

  /// A cache belongs to one Runner at a time; throws UsageError if another one has it.
  void acquire_cache();
  void release_cache();

 private:
  Model(Session session, Tokenizer tokenizer, std::unique_ptr<const ModelPlan> plan);
  void add_entry_once(const std::string& name, const std::function<Graph()>& make_graph);
  TensorMap read_rows(const std::string& entry, const std::vector<models::CacheSpec>& caches,
                      std::span<const std::int32_t> rows);
  void write_rows(const std::string& entry, const std::vector<models::CacheSpec>& caches,
                  std::span<const std::int32_t> rows, const TensorMap& values);
  const std::vector<models::CacheSpec>& caches_of(std::optional<std::size_t> group) const;
  TensorMap text_inputs(const serving::TextBlocks& blocks, std::int64_t start,
                        std::span<const std::int32_t> tokens) const;

  Session session_;
  Tokenizer tokenizer_;
  std::unique_ptr<const ModelPlan> plan_;
  std::optional<ChatTemplate> template_;
  std::vector<int> end_tokens_;
  SamplerOptions sampling_;
  LoadSeconds load_seconds_;
  std::uint64_t hash_ = 0;    // of the config, samples of the weights, and everything that the context determines
  mutable std::mutex mutex_;  // guards the following members
  mutable std::shared_ptr<const Vocabulary> vocabulary_;
  bool cache_is_taken_ = false;
};

}  // namespace jerboa::language
