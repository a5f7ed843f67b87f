#pragma once

#include <optional>
#include <string_view>

#include <jerboa/text/tokenizer.h>

namespace jerboa {

/// What a .model file does not specify. If unset: like Llama for BPE (beginning), like T5 for Unigram (end).
struct SentencePieceOptions {
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
};

/// From the content of a sentencepiece .model; errors (FileError) call the file `name`.
Tokenizer load_sentencepiece(std::string_view content, std::string_view name, SentencePieceOptions options = {});

/// From the content of a llama2.c tokenizer.bin.
Tokenizer load_llama2c(std::string_view content, std::string_view name);

}  // namespace jerboa
