#pragma once

#include <cstdint>

namespace jerboa::cpu {

/// Which tokens of a batch are not padding, and which row of the state belongs to each sequence. Tokens at negative
/// positions are padding; a row of the batch whose first token is at position 0 starts from zeros.
struct RecurrentTokens {
  std::int64_t batch = 0, time = 0;
  std::int64_t rows = 0;                    ///< of the state
  const std::int32_t* positions = nullptr;  ///< [batch, time], or null
  const std::int32_t* slots = nullptr;      ///< [batch], or null

  bool is_real(std::int64_t b, std::int64_t t) const { return positions == nullptr || positions[b * time + t] >= 0; }
  bool starts_from_zeros(std::int64_t b) const {
    if (positions == nullptr) return false;
    for (std::int64_t t = 0; t < time; ++t)
      if (is_real(b, t)) return positions[b * time + t] == 0;
    return false;
  }
  /// The row of the state; -1 if there is none.
  std::int64_t row(std::int64_t b) const {
    if (slots == nullptr) return b;
    return 0 <= slots[b] && slots[b] < rows ? slots[b] : -1;
  }
  /// The sequence's part of a state with rows of this width; null if it starts from zeros.
  const float* initial(const float* state, std::int64_t b, std::int64_t width) const {
    return state == nullptr || row(b) < 0 || starts_from_zeros(b) ? nullptr : state + row(b) * width;
  }
};

}  // namespace jerboa::cpu
