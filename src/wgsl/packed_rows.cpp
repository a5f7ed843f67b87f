#include "wgsl/packed_rows.h"

namespace jerboa::wgsl {
namespace {

// A call of `function` with a feature's word, the word with its scale, and its number.
std::string unpack(Shader& shader, const TensorAccess& tensor, std::vector<std::string> indices,
                   const std::string& function) {
  const std::string feature = indices.back();
  indices.back() = fmt::format("(({}) / {}u)", feature, features_per_word);
  const std::string word = shader.load(tensor, indices);
  const std::int64_t first_scale = features_of(tensor).value() / features_per_word;
  indices.back() = fmt::format("({}u + ({}) / {}u)", first_scale, feature, features_per_scale_word);
  return fmt::format("{}({}, {}, {})", shader.use(function), word, shader.load(tensor, indices), feature);
}

}  // namespace

std::string load_feature(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices) {
  return is_packed(tensor) ? unpack(shader, tensor, indices, "unpack_one") : shader.load(tensor, indices);
}

std::string load_four_packed(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices) {
  return unpack(shader, tensor, indices, "unpack_four");
}

}  // namespace jerboa::wgsl
