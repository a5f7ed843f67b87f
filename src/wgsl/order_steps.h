#pragma once

#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// For each step the wave that it can run in: it depends only on steps of earlier waves. A GPU runs the steps of a wave
/// concurrently, and waits only where one reads what another wrote.
std::vector<int> waves_of(const Program& program, const std::vector<const GpuStep*>& steps);

}  // namespace jerboa::wgsl
