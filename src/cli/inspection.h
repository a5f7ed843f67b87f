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
  std::int64_t zeros = 0, not_finite = 0;  ///< the other statistics leave out values that are not finite
};
struct InspectedTensor {
  std::string name, type;
  std::vector<std::int64_t> shape;
  std::int64_t bytes = 0;
  std::optional<TensorStatistics> statistics = {};
};

/// The content of a file or folder: a model, a checkpoint or a program.
struct Inspection {
  std::string kind, path;
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<InspectedTensor> tensors;
  std::vector<std::pair<std::string, std::int64_t>> memory;  ///< bytes of a model's weights, by precision
  std::optional<Graph> graph;                                ///< of a model
  std::vector<ProgramEntry> programs;                        ///< of a program file, or compiled from the graph
  std::vector<KernelTime> times;                             ///< if it was profiled
};

struct InspectOptions {
  bool statistics = false;   ///< of tensors; reads all of them
  int tokens = 1;            ///< sequence length of a model's graph
  bool compile = false;      ///< the graph of a model for WebGPU
  std::string profile = {};  ///< device to measure the kernels on, with random weights
};

/// Throws FileError or UsageError if the file cannot be read.
Inspection inspect(const std::filesystem::path& path, const InspectOptions& options);

/// The inspection as JSON, without the graph.
nlohmann::ordered_json to_json(const Inspection& inspection);
/// One self-contained page: facts, layers, kernels with their WGSL, memory over time.
std::string to_html(const Inspection& inspection);

/// "[256, 64]"
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace jerboa::cli
