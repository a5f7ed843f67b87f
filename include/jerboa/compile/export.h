#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/ir/graph.h>
#include <jerboa/lower/program_file.h>
#include <jerboa/transform/checks.h>

namespace jerboa {

/// Compiles graphs for a device that need not be present, by default for any WebGPU device, in a browser or natively.
/// Parameters and states are shared by name; throws UsageError if their types do not agree.
///
///   const ProgramFile program = compile_program({{"step", training_graph(…)}, {"forward", forward_graph(…)}});
///   save_program("model.jerboa", program);
///   save_initial_params("model.safetensors", program, 0);
///
/// With checks, every host checks each run and names the first tensor that fails: those of the graphs, not of the
/// environment. They are slow.
ProgramFile compile_program(const std::vector<std::pair<std::string, Graph>>& entries,
                            const Target& target = Target::webgpu_default(), const Checks& checks = {});

/// Saves the parameters that a session of the program starts with as a safetensors file.
void save_initial_params(const std::filesystem::path& path, const ProgramFile& program, std::uint64_t seed = 0);

}  // namespace jerboa
