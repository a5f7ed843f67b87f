#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/io/gguf.h>
#include <jerboa/io/tensor_source.h>
#include <jerboa/models/gguf_model.h>

#include "models/gguf_architecture.h"

// The parts of read_gguf_model, one file each. All throw FileError.
namespace jerboa::models {

/// The text of config.json.
std::string gguf_config(const Gguf& file, const GgufArchitecture& architecture);

/// The weights under Hugging Face's names.
std::unique_ptr<const TensorSource> gguf_weights(std::shared_ptr<const Gguf> file,
                                                 const GgufArchitecture& architecture);

/// tokenizer_name, tokenizer, tokenizer_config and generation_config.
void read_gguf_tokenizer(const Gguf& file, const GgufArchitecture& architecture, GgufModel& model);

/// A metadata key under the architecture's name: "llama.context_length".
std::string key_of(const GgufArchitecture& architecture, std::string_view key);
/// A whole number from 1 to 2^31 - 1.
std::int64_t gguf_size(const Gguf& file, const std::string& key);

/// The numbers of query and key heads, and the size of a head, which a file may leave out.
struct GgufHeads {
  GgufHeads(const Gguf& file, const GgufArchitecture& architecture);
  std::int64_t queries, keys, size;
};

}  // namespace jerboa::models
