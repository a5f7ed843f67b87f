#pragma once

#include <optional>
#include <string_view>

#include <jerboa/text/tokenizer.h>

namespace jerboa {

/// Settings that a .model file lacks. The defaults are those of Llama for BPE (beginning) and of T5 for Unigram (end).
struct SentencePieceOptions {
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
};

/// Loads the content of a sentencepiece .model; errors (FileError) call the file `name`.
Tokenizer load_sentencepiece(std::string_view content, std::string_view name, SentencePieceOptions options = {});

/// Loads the content of a llama2.c tokenizer.bin.
Tokenizer load_llama2c(std::string_view content, std::string_view name);

}  // namespace jerboa
