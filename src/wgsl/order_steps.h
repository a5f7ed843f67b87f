#pragma once

#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// The wave in which each step can run: it depends only on steps of earlier waves. A GPU runs the steps of a wave
/// concurrently, and waits only where one reads what another wrote. `beside`: a number for each step, or empty;
/// adjacent steps with the same number, other than -1, do not wait for each other although they write to the same
/// memory.
std::vector<int> waves_of(const Program& program, const std::vector<const GpuStep*>& steps,
                          const std::vector<int>& beside = {});

}  // namespace jerboa::wgsl
