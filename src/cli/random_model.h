#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <jerboa/models/config.h>

#include "io/safetensors_header.h"

namespace jerboa::cli {

/// A model with random bf16 weights, to be written as a Hugging Face folder.
class RandomModel {
 public:
  explicit RandomModel(const models::Config& config);

  /// The size of its weights.
  std::uint64_t bytes() const;
  /// Writes config.json, a made-up tokenizer and the weights. Returns the paths of the weight files.
  std::vector<std::filesystem::path> write(const std::filesystem::path& folder) const;

 private:
  models::Config config_;
  std::vector<io::TensorPlace> tensors_;
};

}  // namespace jerboa::cli
