#pragma once

#include <cstdint>
#include <vector>

#include <jerboa/base/dtype.h>
#include <jerboa/models/family.h>

namespace jerboa::language {

/// What the key/value cache of a model can hold.
struct CacheSize {
  int blocks = 0, block = 0;  ///< how many, and of how many tokens
  DType dtype = DType::f32;
  std::vector<models::WindowedBlocks> windowed = {};  ///< layers with blocks of their own, of as many tokens
  std::int64_t bytes = 0;
};

}  // namespace jerboa::language
