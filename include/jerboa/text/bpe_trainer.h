#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

struct BpeTraining {
  std::int32_t vocab_size = 8192;  ///< including the 256 bytes and the special tokens
  std::uint64_t min_frequency = 2;
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

/// Trains a byte-level BPE tokenizer, like GPT-2's: it can encode any text, and its tokenizer.json loads in other
/// tools.
///
///     BpeTrainer trainer({.vocab_size = 4096});
///     trainer.add(text);
///     std::string json = trainer.train();
class BpeTrainer {
 public:
  /// Throws UsageError if the vocabulary has no room for the bytes and the special tokens.
  explicit BpeTrainer(BpeTraining options = {});
  BpeTrainer(BpeTrainer&&) noexcept;
  BpeTrainer& operator=(BpeTrainer&&) noexcept;
  ~BpeTrainer();

  /// Counts the words of a text. May be called many times.
  void add(std::string_view text);

  /// The text of a tokenizer.json. The same texts give the same result, in any order.
  std::string train() const;

 private:
  struct Words;
  BpeTraining options_;
  std::unique_ptr<Words> words_;
};

}  // namespace jerboa
