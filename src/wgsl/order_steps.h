#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Groups independent steps next to each other. A GPU runs such steps concurrently, and waits only where one reads what
/// another wrote.
void order_steps(Program& program);

}  // namespace jerboa::wgsl
