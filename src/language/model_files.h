#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include <jerboa/io/tensor_source.h>
#include <jerboa/models/config.h>
#include <jerboa/text/chat_template.h>
#include <jerboa/text/tokenizer.h>

#include "steps/generation_config.h"

namespace jerboa::detail {

/// The files of a language model, opened but not yet loaded onto a device.
struct ModelFiles {
  models::Config config;
  GenerationConfig generation;
  std::unique_ptr<const TensorSource> weights;
  DType usual_weights = DType::f32;  ///< the type to store matrices in, unless the user picks another
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
};

/// Opens a Hugging Face folder or a .gguf file. Reads everything but the weights, of which it reads only the headers.
/// Throws UsageError or FileError that names what is missing or not supported.
ModelFiles open_model(const std::filesystem::path& path);

}  // namespace jerboa::detail
