#pragma once

#include <span>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/serving/seen_tokens.h>
#include <jerboa/serving/step.h>

namespace jerboa::serving {

/// The sizes that one axis of a step may have.
class Buckets {
 public:
  /// `sizes` in ascending order up to `most` or more, or empty for powers of two. Throws UsageError, naming the option,
  /// if they do not fit.
  Buckets(std::vector<int> sizes, int most, const char* option);
  /// The smallest size that holds `count`.
  int size_for(int count) const;

 private:
  std::vector<int> sizes_;
};

/// The contents of one row's arrays.
struct RowInput {
  Row row;
  std::span<const std::int32_t> ids;    ///< of its tokens; one fewer if the last one is carried
  std::span<const std::int32_t> draft;  ///< guesses after them
  std::span<const Block> table;
  std::vector<std::span<const Block>> windowed = {};  ///< of the layers with windows
  const SamplerOptions* sampling = nullptr;
  const SeenTokens* seen = nullptr;  ///< if there are penalties
  std::uint32_t draw = 0;
  std::int32_t carried = -1;
  std::int32_t state = no_slot;
};

struct StepSizes {
  Buckets rows, time, blocks;
};

/// The arrays of a step.
Step build_step(std::span<const RowInput> rows, const StepSizes& sizes, bool has_states, std::size_t windowed);

}  // namespace jerboa::serving
