#pragma once

#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// For each step the wave that it can run in: it depends only on steps of earlier waves. A GPU runs the steps of a wave
/// concurrently, and waits only where one reads what another wrote. `beside`: a number for each step, or nothing; steps
/// that follow each other with the same one, other than -1, do not wait for each other although they write to the same
/// memory.
std::vector<int> waves_of(const Program& program, const std::vector<const GpuStep*>& steps,
                          const std::vector<int>& beside = {});

}  // namespace jerboa::wgsl
