#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/backend/backend.h>
#include <jerboa/ir/graph.h>
#include <jerboa/lower/program_file.h>

namespace jerboa::cli {

struct TensorStatistics {
  double least = 0, most = 0, mean = 0, deviation = 0;
  std::int64_t zeros = 0, not_finite = 0;  ///< how many; the others leave out what is not finite
};
struct InspectedTensor {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::optional<TensorStatistics> statistics = {};
};

/// What is in a file or folder: a model, a checkpoint or a program.
struct Inspection {
  std::string kind, path;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<InspectedTensor> tensors;
  std::vector<std::pair<std::string, std::int64_t>> memory;  ///< bytes of the weights by precision, of models
  std::optional<Graph> graph;                                ///< of models
  std::vector<ProgramEntry> programs;                        ///< of program files, or what the graph compiles to
  std::vector<KernelTime> times;                             ///< if it was profiled
};

struct InspectOptions {
  bool statistics = false;   ///< of tensors, which reads all of them
  int tokens = 1;            ///< that the graph of a model computes
  bool compile = false;      ///< the graph of a model, for WebGPU
  std::string profile = {};  ///< a device to measure the kernels on, with random weights
};

/// Throws FileError or UsageError that says what is wrong with the file.
Inspection inspect(const std::filesystem::path& path, const InspectOptions& options);

/// For programs, without the graph.
nlohmann::ordered_json to_json(const Inspection& inspection);
/// One page that needs nothing else: facts, layers, kernels with their WGSL, memory over time.
std::string to_html(const Inspection& inspection);

/// "[256, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace jerboa::cli
