#pragma once

#include <string>

#include <jerboa/ir/reserved_names.h>
#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// state_input for the library's own states, whose names (ir/reserved_names.h) it refuses.
Tensor reserved_state(const std::string& name, Shape shape, DType dtype, Init init = Init::zeros(),
                      const CallSite& site = {});

}  // namespace jerboa::detail
