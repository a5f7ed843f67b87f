#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/base/dtype.h>

namespace jerboa::cli {

/// Random weights of any type as bytes. One block of random values is copied again and again, so that billions of
/// weights take seconds. The block's length is odd, so that rows of a matrix differ.
class RandomWeights {
 public:
  /// Valid until the next call.
  std::span<const std::byte> bytes(DType dtype, bool is_scale, std::int64_t count);

 private:
  struct Block {
    std::string bytes;
    std::size_t next = 0;  // position to copy from
  };
  Block& block_of(DType dtype, bool is_scale);

  std::map<std::pair<DType, bool>, Block> blocks_;
  std::vector<std::byte> values_;
};

}  // namespace jerboa::cli
