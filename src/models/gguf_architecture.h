#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/gguf.h>

// Maps GGUF's names to those of Hugging Face's folders: a table for each architecture.
namespace jerboa::models {

/// A change that the converter to GGUF made to a tensor, and that reading it undoes.
enum class GgufChange {
  none,
  query_rows,  ///< the rows of each query head are in the order of pairs that are rotated together
  key_rows,    ///< the same for key heads
  plus_one,    ///< 1 is added to each value
  transposed,  ///< [out, in] instead of [in, out]
  experts,     ///< the experts of a layer are one tensor [experts, out, in]
};

/// A module's name, without ".weight" and ".bias"; N stands for the number of a layer, and E for that of an expert.
struct GgufName {
  std::string_view gguf, hugging_face;
  GgufChange change = GgufChange::none;
};

/// A number that GGUF's metadata holds under the architecture's name, and its key in config.json.
struct GgufKey {
  enum class Kind { size, number };
  std::string_view gguf, hugging_face;
  Kind kind = Kind::size;
  bool required = true;
};

struct GgufArchitecture {
  enum class Form { llama, gemma, gpt2 };
  std::string_view name;        ///< general.architecture
  std::string_view model_type;  ///< in config.json
  std::string_view class_name;  ///< the first entry of `architectures` in config.json, which transformers needs
  Form form = Form::llama;
  std::span<const GgufName> names = {};  ///< beyond those that Llama's descendants share, or in their place
  std::span<const GgufKey> keys = {};    ///< beyond those that Llama's descendants share
  std::string_view constants = {};       ///< JSON: keys of config.json that GGUF lacks

  std::vector<GgufKey> all_keys() const;
};

/// Throws FileError that lists the supported architectures.
const GgufArchitecture& gguf_architecture(const Gguf& file);

/// A GGUF tensor, resolved by the table.
struct GgufPlace {
  const GgufName* name = nullptr;
  std::string layer;   ///< "" if the tensor belongs to no layer
  std::string suffix;  ///< ".weight", ".bias" or ""

  /// The name in a Hugging Face file; if the tensor holds several experts, that of one expert.
  std::string hugging_face(std::int64_t expert = 0) const;
};
/// Empty for a name that is not in the table.
std::optional<GgufPlace> find_place(const GgufArchitecture& architecture, std::string_view tensor);

}  // namespace jerboa::models
