#pragma once

#include <string>
#include <vector>

#include <jerboa/ir/packed_cache.h>

#include "wgsl/shader.h"

// Rows of 8-bit caches (ir/packed_cache.h), as f32.
namespace jerboa::wgsl {

inline bool is_packed(const TensorAccess& tensor) { return tensor.dtype == packed_cache; }
/// The features of a row of keys or values, packed or not.
inline Dim features_of(const TensorAccess& tensor) {
  return is_packed(tensor) ? Dim(unpacked_size(tensor.shape[3].value())) : tensor.shape[3];
}

/// WGSL expression of a feature of keys or values, packed or not, at these indices.
std::string load_feature(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices);
/// The same for four features of a packed row, from a multiple of four on: a vec4f.
std::string load_four_packed(Shader& shader, const TensorAccess& tensor, const std::vector<std::string>& indices);

}  // namespace jerboa::wgsl
