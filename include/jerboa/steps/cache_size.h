#pragma once

#include <cstdint>
#include <vector>

#include <jerboa/base/dtype.h>
#include <jerboa/models/family.h>

namespace jerboa::language {

/// The capacity of a model's key/value cache.
struct CacheSize {
  int blocks = 0, block = 0;  ///< number of blocks, and tokens per block
  DType dtype = DType::f32;
  std::vector<models::WindowedBlocks> windowed = {};  ///< layers with separate blocks, of the same number of tokens
  std::int64_t bytes = 0;
};

}  // namespace jerboa::language
