#pragma once

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Puts steps that do not depend on each other next to each other. A GPU runs such steps at the same time, and waits
/// only where one needs what another wrote.
void order_steps(Program& program);

}  // namespace jerboa::wgsl
