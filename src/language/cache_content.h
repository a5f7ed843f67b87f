#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/io/safetensors.h>

namespace jerboa::language {

/// What the cache of a model is like.
struct CacheForm {
  std::string model;  ///< Model::fingerprint
  std::int64_t vocabulary = 0;
  int block = 0;  ///< tokens
  /// By name, for any number of blocks, and for one text: the first size does not count.
  std::map<std::string, HostTensor> blocks, states;
  /// Layers with windows, of which a text needs its last `reach` blocks to go on.
  struct Windowed {
    std::map<std::string, HostTensor> blocks;
    int reach = 0;
  };
  std::vector<Windowed> windowed = {};
};

/// What a file of save_cache holds: whole blocks of tokens, and for each layer the blocks and, if the model has
/// recurrent layers and there are any blocks, the states after them. Of layers with windows it may have the last blocks
/// alone.
struct CacheContent {
  std::vector<std::int32_t> tokens;
  std::map<std::string, HostTensor> blocks, states;
  std::vector<std::map<std::string, HostTensor>> windowed = {};
};

inline constexpr const char* cache_format = "jerboa.cache";
inline constexpr const char* tokens_of_cache = "tokens";
StoredType stored_type_of_cache(DType dtype);

/// Throws FileError if the file is none of save_cache, or does not fit the model.
CacheContent cache_content(const SafeTensors& file, const CacheForm& form);

}  // namespace jerboa::language
