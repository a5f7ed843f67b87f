#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <jerboa/serving/scheduler.h>

// A model without weights whose text depends on every key that its layers see, read through the step's tables from a
// paged cache that the step's own inputs have written: a wrong table, position, copy or truncation changes the text. It
// has one layer, and another for each group of layers with windows, or a second one like the first.
namespace jerboa::serving::test {

constexpr std::int32_t end_token = 0;
constexpr int vocabulary = 12;

/// The windows of its layers.
std::vector<int> windows_of(const SchedulerOptions& options);

/// The context that a text after `tokens` depends on: a hash of the tokens, computed without a cache.
struct Context {
  std::vector<int> windows;
  std::vector<std::vector<std::uint64_t>> keys = {};  // of each layer
  std::uint64_t state = 0;
  bool uses_state = false;

  /// The model's output after one more token.
  std::uint64_t push(std::int32_t token);
};

/// The model's logits, given its output and the last token. Mostly a token follows from the one before it
/// alone, so that texts repeat themselves and guesses succeed.
std::vector<float> logits_of(std::uint64_t output, std::int32_t token);
/// The token that the device draws from logits, restricted to `mask` if it is not empty; the most likely one if the
/// temperature is 0.
std::int32_t draw_token(std::vector<float> logits, float temperature, std::uint64_t seed, std::uint32_t draw,
                        std::span<const std::uint32_t> mask = {});
/// Applies penalties and biases to logits, by their definitions.
void adjust(std::span<float> logits, const SamplerOptions& options, std::span<const std::int32_t> prompt,
            std::span<const std::int32_t> generated);

/// Allows no token twice in a row, and ends the text after its third 7.
class NoRepetition : public Constraint {
 public:
  const TokenMask& allowed(int tokens_left) override;
  void accept(int token) override;
  bool complete() const override { return sevens_ == 3; }
  void reset() override { last_ = sevens_ = 0; }

 private:
  int last_ = end_token, sevens_ = 0;
  TokenMask mask_;
};

/// The text that the model generates alone, without a scheduler, and why it ends.
struct Text {
  std::vector<std::int32_t> tokens;
  FinishReason reason = FinishReason::length;

  friend bool operator==(const Text&, const Text&) = default;
};
Text write_alone(std::span<const std::int32_t> prompt, const SequenceOptions& options, bool on_host,
                 std::int64_t context, bool uses_state, const std::vector<int>& windows = {0, 0});

/// Runs steps on a simulated cache, and checks that each is well-formed.
class FakeDevice {
 public:
  static constexpr int no_group = -1;

  FakeDevice(const SchedulerOptions& options, std::uint64_t seed);

  /// Runs a step. Its results can be read later.
  void submit(const Step& step);
  /// The results of the oldest step that was not read yet.
  StepResults wait();

  /// The content of a block, and where to write it, for saving and restoring: in the layers of a group with windows, or
  /// in the others.
  std::vector<std::uint64_t> read_block(Block block, int group = no_group) const;
  void write_block(Block block, std::span<const std::uint64_t> content, int group = no_group);
  std::uint64_t& state(std::int32_t slot) { return states_.at(static_cast<std::size_t>(slot)); }

 private:
  struct Layer {
    int group, window, blocks;
    std::vector<std::uint64_t> cells;  // [blocks, block_size]
  };
  std::uint64_t& cell(Layer& layer, const Step& step, int row, std::int32_t position) const;
  void write(Layer& layer, const Step& step, const std::vector<std::uint64_t>& values);
  std::vector<std::uint64_t> attend(Layer& layer, const Step& step);
  void check_shapes(const Step& step) const;
  void adjust_logits(std::span<float> logits, const Step& step, std::size_t row, int output) const;

  int block_size_;
  bool uses_state_;
  std::vector<Layer> layers_;
  std::vector<std::uint64_t> states_;
  std::vector<std::int32_t> last_tokens_;  // of the last step, by row
  std::deque<StepResults> results_;
};

}  // namespace jerboa::serving::test
