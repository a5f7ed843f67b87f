#pragma once

#include <optional>
#include <string_view>

#include <jerboa/text/tokenizer.h>

namespace jerboa {

/// What a .model file does not say itself. Nothing: as Llama does for BPE (beginning), as T5 for Unigram (end).
struct SentencePieceOptions {
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
};

/// From the content of a sentencepiece .model; `name` stands for the file in errors (FileError).
Tokenizer load_sentencepiece(std::string_view content, std::string_view name, SentencePieceOptions options = {});

/// From the content of a llama2.c tokenizer.bin.
Tokenizer load_llama2c(std::string_view content, std::string_view name);

}  // namespace jerboa
