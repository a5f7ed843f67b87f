#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/thread_pool.h"

namespace jerboa::memory {

/// A search result: the id of a vector and its score.
struct Neighbour {
  std::int64_t id = 0;
  float score = 0;  ///< the dot product with the query
  bool operator==(const Neighbour&) const = default;
};

/// Vectors in memory, searched exhaustively: every one is compared with the query, with SIMD and on all cores. Scores
/// do not depend on the number of threads.
class VectorIndex {
 public:
  /// `threads` includes the calling thread; 0: one per core.
  explicit VectorIndex(std::int64_t dimensions, int threads = 0);

  void reserve(std::int64_t count);
  /// Throws UsageError if the vector does not have the index's dimensions.
  void add(std::int64_t id, std::span<const float> vector);
  /// The vectors with the largest dot products, best first; of equal ones, the one that was added first.
  std::vector<Neighbour> nearest(std::span<const float> query, std::int64_t count);

  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t dimensions() const { return dimensions_; }

 private:
  void check_size(std::size_t size) const;

  std::int64_t dimensions_, stride_;
  std::vector<std::int64_t> ids_;
  std::vector<float> values_;  // [size, stride]: padded with zeros
  cpu::ThreadPool pool_;
};

}  // namespace jerboa::memory
