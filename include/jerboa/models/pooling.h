#pragma once

#include <cstdint>

#include <jerboa/ops/tensor.h>

namespace jerboa::models {

/// How the vectors of a text's tokens become one.
enum class Pooling : std::uint8_t {
  cls,            ///< the first token's
  last,           ///< the last token's
  mean,           ///< their mean
  max,            ///< the largest value of each feature
  mean_sqrt,      ///< their sum, divided by the square root of their number
  weighted_mean,  ///< their mean, where token i counts i times, from 1 on
};

/// [batch, width] from [batch, time, width]. Without lengths i32[batch], no text is padded. With skipped i32[batch], so
/// many tokens at the beginning are left out of means and maxima.
Tensor pool(const Tensor& hidden, const Tensor& lengths, Pooling kind, const Tensor& skipped = {});
/// Each row divided by its Euclidean length.
Tensor unit_rows(const Tensor& x);

}  // namespace jerboa::models
