#pragma once

#include <memory>

#include <jerboa/models/family.h>

namespace jerboa::models {

/// The parameters of a family's graph under the names and in the shapes that its checkpoints have: quantised weights as
/// f32, transposed where checkpoints hold [in, out], and stacked experts one by one. `params` must outlive it.
std::unique_ptr<const TensorSource> in_checkpoint_form(const TensorSource& params, const Family& family);

}  // namespace jerboa::models
