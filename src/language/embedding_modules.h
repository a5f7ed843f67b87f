#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/io/safetensors.h>
#include <jerboa/language/text_encoder.h>
#include <jerboa/models/pooling.h>

namespace jerboa::detail {

enum class Activation : std::uint8_t { none, tanh, sigmoid, relu, gelu, silu };
/// From the name of a PyTorch class, as sentence-transformers writes it: "torch.nn.modules.activation.Tanh".
std::optional<Activation> torch_activation(std::string_view name);

/// A layer after pooling. Its parameters are NAME.linear.weight and NAME.linear.bias.
struct DenseModule {
  std::string name;
  int in = 0, out = 0;
  Activation activation = Activation::tanh;
  std::optional<HostTensor> bias = {};
  HostTensor weight = {};  ///< f32[out, in]
};

/// What follows the pooling: a dense layer, or none: normalisation.
using EmbeddingStep = std::optional<DenseModule>;

/// What the files of sentence-transformers in a model's folder say.
struct EmbeddingModules {
  std::filesystem::path transformer;           ///< the folder of the model itself
  std::vector<models::Pooling> poolings = {};  ///< whose results are concatenated; none: as suits the model
  bool include_prompt = true;                  ///< in the pooling
  std::vector<EmbeddingStep> steps = {};       ///< up to the last normalisation
  bool normalise = true;                       ///< at the end
  std::optional<int> max_length = {};          ///< of a text in tokens
  bool lower_case = false;
  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  ///< its name; empty: none
  Similarity similarity = Similarity::cosine;
};

/// Throws FileError that names what is not supported.
EmbeddingModules read_embedding_modules(const std::filesystem::path& folder);

}  // namespace jerboa::detail
