#pragma once

#include <cstdint>

#include <jerboa/ops/tensor.h>

namespace jerboa::models {

/// How the vectors of a text's tokens are combined into one.
enum class Pooling : std::uint8_t {
  cls,            ///< the first token's
  last,           ///< the last token's
  mean,           ///< their mean
  max,            ///< the largest value of each feature
  mean_sqrt,      ///< their sum, divided by the square root of their number
  weighted_mean,  ///< their mean, where token i is weighted by i, from 1 on
};

/// [batch, width] from [batch, time, width]. Without lengths i32[batch], no text is padded. With skipped i32[batch],
/// this many leading tokens are left out of means and maxima.
Tensor pool(const Tensor& hidden, const Tensor& lengths, Pooling kind, const Tensor& skipped = {});
/// Each row divided by its Euclidean length.
Tensor unit_rows(const Tensor& x);

}  // namespace jerboa::models
