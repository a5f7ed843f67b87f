#pragma once

#include <memory>

#include <jerboa/models/family.h>

namespace jerboa::models {

/// The parameters of a family's graph under the names and in the shapes of the family's checkpoints: quantised weights
/// become f32, matrices are transposed where checkpoints hold [in, out], and stacked experts are split. `params` must
/// outlive the result.
std::unique_ptr<const TensorSource> in_checkpoint_form(const TensorSource& params, const Family& family);

}  // namespace jerboa::models
