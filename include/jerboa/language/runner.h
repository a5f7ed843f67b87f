#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <jerboa/language/model.h>
#include <jerboa/language/statistics.h>
#include <jerboa/language/stream.h>

namespace jerboa::language {

/// Blocks of the cache for a text that is computed beside the sequences; given back on destruction. Such texts share
/// one state of recurrent layers, so that only one at a time can have blocks of a model with such layers.
class ReservedBlocks {
 public:
  ReservedBlocks(ReservedBlocks&&) noexcept = default;
  ReservedBlocks& operator=(ReservedBlocks&&) = delete;
  ~ReservedBlocks();
  const serving::TextBlocks& text() const { return *blocks_; }

 private:
  friend class Engine;
  ReservedBlocks(std::shared_ptr<Engine> engine, serving::TextBlocks blocks);

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<serving::TextBlocks> blocks_;
};

/// Generates many texts at once with one model: a Scheduler decides what each step computes, and the model computes it.
/// There is no background thread: the threads that wait for a text take turns in running steps, for all texts. Any
/// thread may call anything at any time.
///
///     language::Runner runner(language::Model::load("Qwen3-0.6B"));
///     language::Stream first = runner.submit(prompt), second = runner.submit(other_prompt, {.max_tokens = 20});
///     while (auto piece = first.next()) std::cout << piece->text << std::flush;
///     std::cout << second.wait().text;
class Runner {
 public:
  /// Throws UsageError if the model already has a runner.
  explicit Runner(std::shared_ptr<Model> model);

  /// Queues a prompt. Throws UsageError if it can never run: no tokens, more than the context, options out of range.
  Stream submit(std::vector<std::int32_t> prompt, const GenerateOptions& options = {});
  /// Another continuation of everything that a stream holds so far, prompt and text. They share the cache. Throws
  /// UsageError if the stream has ended.
  Stream fork(const Stream& stream, const GenerateOptions& options = {});

  /// Runs steps for about this many seconds, at least one if there is work and no other thread runs them, for programs
  /// that must not block; returns whether any text has not ended. Pieces can then be fetched with take().
  bool poll(double seconds);

  /// From now on this smaller model makes the guesses for texts with GenerateOptions::drafts, instead of prompt lookup.
  /// Throws UsageError if its tokens differ from the model's, or while texts are being generated.
  void draft_with(std::shared_ptr<Model> model);

  /// Room in the cache for a text that the caller computes with the model directly. Throws UsageError if there is none.
  /// Texts that are being generated may have to wait until it is given back, so a thread that holds it must not wait
  /// for one. With recurrent layers it waits until no other thread holds such room, and throws UsageError if this one
  /// does.
  ReservedBlocks reserve(std::int64_t tokens);
  /// Writes the cache of a text, in whole blocks, to a safetensors file; returns the number of tokens.
  std::int64_t save_cache(const std::filesystem::path& path, std::span<const std::int32_t> tokens);
  /// Loads such a file into the cache, where texts that begin with its tokens find it; returns how many more of them
  /// need not be computed now: none if they were in the cache already, or if it has no room. Throws FileError if the
  /// file belongs to another model or has another block size.
  std::int64_t load_cache(const std::filesystem::path& path);
  /// Forgets texts that have ended.
  void clear_cache();

  Statistics statistics() const;
  /// From now on records when steps and texts begin and end.
  void start_trace();
  /// Writes the recording, for Perfetto (ui.perfetto.dev) and chrome://tracing.
  void write_trace(const std::filesystem::path& path) const;

  Model& model() const;

 private:
  std::shared_ptr<Engine> engine_;
};

}  // namespace jerboa::language
