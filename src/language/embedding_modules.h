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

/// A step after pooling: a dense layer or, if empty, normalisation.
using EmbeddingStep = std::optional<DenseModule>;

/// The settings in a model's folder that sentence-transformers wrote.
struct EmbeddingModules {
  std::filesystem::path transformer;           ///< the folder of the model itself
  std::vector<models::Pooling> poolings = {};  ///< concatenated; empty: the default of the model's family
  bool include_prompt = true;                  ///< the prompt's tokens take part in pooling
  std::vector<EmbeddingStep> steps = {};       ///< up to the last normalisation
  bool normalise = true;                       ///< at the end
  std::optional<int> max_length = {};          ///< of a text in tokens
  bool lower_case = false;
  std::map<std::string, std::string> prompts = {};
  std::string default_prompt = {};  ///< by name; empty: none
  Similarity similarity = Similarity::cosine;
};

/// Throws FileError that names an unsupported setting.
EmbeddingModules read_embedding_modules(const std::filesystem::path& folder);

}  // namespace jerboa::detail
