#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <jerboa/io/gguf.h>
#include <jerboa/io/tensor_source.h>

namespace jerboa::models {

/// A model from a GGUF file in Hugging Face's form: the contents of its folder's files, and the weights under their
/// names there.
struct GgufModel {
  std::string config, generation_config, tokenizer_config;  ///< the texts of these .json files
  std::string tokenizer_name, tokenizer;                    ///< tokenizer.json or tokenizer.model
  std::unique_ptr<const TensorSource> weights;
  DType usual_weights = DType::f32;  ///< the type that keeps most of the weights exactly, or nearly so
};

/// Throws FileError, before allocating what the file asks for, if its architecture, its tokenizer or one of its tensors
/// is not supported.
GgufModel read_gguf_model(Gguf file);

}  // namespace jerboa::models
