#pragma once

#include <string>

namespace jerboa::wgsl {

/// Why the steps of a program cannot be phases of one dispatch (persistent.h), for those who catch it there.
struct Refusal {
  std::string reason;
};

}  // namespace jerboa::wgsl
