#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <jerboa/models/config.h>

#include "io/safetensors_header.h"

namespace jerboa::cli {

/// A model with random weights in bf16, to be written as a Hugging Face folder.
class RandomModel {
 public:
  explicit RandomModel(const models::Config& config);

  /// Of its weights.
  std::uint64_t bytes() const;
  /// Writes config.json, a tokenizer of made-up tokens and the weights. Returns the files of these.
  std::vector<std::filesystem::path> write(const std::filesystem::path& folder) const;

 private:
  models::Config config_;
  std::vector<io::TensorPlace> tensors_;
};

}  // namespace jerboa::cli
