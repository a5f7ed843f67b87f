#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/io/safetensors.h>

namespace jerboa::language {

/// The layout of a model's cache, which a cache file must match.
struct CacheForm {
  std::string model;  ///< Model::fingerprint
  std::int64_t vocabulary = 0;
  int block = 0;  ///< tokens
  /// Tensors by name, of blocks and of one sequence's states; their first size is ignored.
  std::map<std::string, HostTensor> blocks, states;
  /// Layers with sliding windows. To go on, a sequence needs the last `reach` blocks of them.
  struct Windowed {
    std::map<std::string, HostTensor> blocks;
    int reach = 0;
  };
  std::vector<Windowed> windowed = {};
};

/// The content of a file that save_cache wrote: whole blocks of tokens, for each layer the blocks, and, if the model
/// has recurrent layers and there are any blocks, the states after them. Layers with windows may have only their last
/// blocks.
struct CacheContent {
  std::vector<std::int32_t> tokens;
  std::map<std::string, HostTensor> blocks, states;
  std::vector<std::map<std::string, HostTensor>> windowed = {};
};

inline constexpr const char* cache_format = "jerboa.cache";
inline constexpr const char* tokens_of_cache = "tokens";
StoredType stored_type_of_cache(DType dtype);

/// Throws FileError if save_cache did not write the file, or if it does not fit the model.
CacheContent cache_content(const SafeTensors& file, const CacheForm& form);

}  // namespace jerboa::language
