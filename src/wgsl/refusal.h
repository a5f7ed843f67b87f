#pragma once

#include <string>

namespace jerboa::wgsl {

/// The reason why the steps of a program cannot be phases of one dispatch (persistent.h); caught there.
struct Refusal {
  std::string reason;
};

}  // namespace jerboa::wgsl
