#include <jerboa/lower/lower.h>

#include "lower/verify_access.h"
#include "lower/verify_cpu.h"
#include "lower/verify_gpu.h"
#include "lower/verify_memory.h"

namespace jerboa {

void verify(const Program& program, const Target& target) {
  detail::verify_memory(program, target);
  detail::verify_dispatches(program);
  detail::verify_access_at_bounds(program);
  detail::verify_cpu(program, target);
  if (program.gpu.emitted) detail::verify_gpu(program, program.gpu);
}

}  // namespace jerboa
