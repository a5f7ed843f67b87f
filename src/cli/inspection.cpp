#include "cli/inspection.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/compile/export.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/io/gguf.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>
#include <jerboa/ops/ops.h>

#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

TensorStatistics statistics_of(std::span<const float> values) {
  TensorStatistics result{
      std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0, 0, 0, 0};
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++result.not_finite;
      continue;
    }
    ++count;
    result.zeros += value == 0;
    result.least = std::min(result.least, static_cast<double>(value));
    result.most = std::max(result.most, static_cast<double>(value));
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  if (count == 0) return {0, 0, 0, 0, 0, result.not_finite};
  result.mean = sum / static_cast<double>(count);
  result.deviation = std::sqrt(std::max(0.0, squares / static_cast<double>(count) - result.mean * result.mean));
  return result;
}

std::vector<InspectedTensor> tensors_of(const TensorSource& source, bool statistics) {
  std::vector<InspectedTensor> tensors;
  std::vector<float> values;
  for (const std::string& name : source.names()) {
    const TensorEntry& entry = source.entry(name);
    InspectedTensor tensor{
        name, std::string(to_string(entry.type)), entry.shape, static_cast<std::int64_t>(entry.bytes), {}};
    if (statistics) {
      values.resize(entry.elements());
      source.read_f32(name, values);
      tensor.statistics = statistics_of(values);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::int64_t parameters_of(const std::vector<InspectedTensor>& tensors) {
  std::int64_t count = 0;
  for (const InspectedTensor& tensor : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t size : tensor.shape) elements *= size;
    count += elements;
  }
  return count;
}

// The graph of a decoder's next token, or of an encoder's output.
Graph graph_of_model(const models::Config& config, DType weights, int tokens) {
  const models::Family& family = models::family_of(config);
  return trace([&] {
    const Tensor ids = tensor_input("ids", {1, tokens}, DType::i32);
    const models::GraphInputs inputs{.tensors = {{"ids", ids}}, .weights = weights};
    if (family.graphs.decoder != nullptr) return output("logits", family.logits(config, inputs));
    if (family.graphs.encoder == nullptr)
      throw UsageError(fmt::format("{} has no graph of texts to show", family.model_type));
    for (const auto& [name, tensor] : family.graphs.encoder(config, inputs)) output(name, tensor);
  });
}

std::int64_t parameter_bytes(const Graph& graph) {
  std::int64_t total = 0;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || !tensor.tied_to.empty()) continue;
    std::int64_t elements = 1;
    for (const Dim& dim : tensor.type.shape) elements *= dim.upper_bound();
    total += elements * bits(tensor.type.dtype) / 8;
  }
  return total;
}

void describe_config(const models::Config& config, Inspection& out) {
  constexpr std::pair<const char*, const char*> keys[] = {{"num_hidden_layers", "layers"},
                                                          {"n_layer", "layers"},
                                                          {"hidden_size", "width"},
                                                          {"n_embd", "width"},
                                                          {"intermediate_size", "MLP width"},
                                                          {"num_attention_heads", "heads"},
                                                          {"n_head", "heads"},
                                                          {"num_key_value_heads", "key/value heads"},
                                                          {"num_experts", "experts"},
                                                          {"num_local_experts", "experts"},
                                                          {"vocab_size", "vocabulary"},
                                                          {"max_position_embeddings", "context"},
                                                          {"n_positions", "context"}};
  out.facts.emplace_back("family", config.text("model_type"));
  for (const auto& [key, label] : keys)
    if (config.has(key)) out.facts.emplace_back(label, std::to_string(config.integer(key)));
}

void compile_graph(const InspectOptions& options, Inspection& out) {
  if (options.compile) out.programs = compile_program({{"forward", *out.graph}}).entries;
  if (options.profile.empty()) return;
  Session session = create_session({{"forward", *out.graph}}, {.device = Device::by_name(options.profile)});
  HostTensor ids(DType::i32, {1, options.tokens});
  std::fill(ids.bytes().begin(), ids.bytes().end(), std::byte{0});
  for (int i = 0; i < 3; ++i) session.run("forward", {{"ids", ids}});  // so that everything is compiled and cached
  session.set_profiling("forward", true);
  const Result result = session.run("forward", {{"ids", ids}});
  result.get(result.names().front());
  out.times = session.profile("forward");
}

void describe_model(const fs::path& path, const InspectOptions& options, Inspection& out) {
  const models::ModelFolder folder = models::open_model_folder(path);
  const models::Config config = models::Config::parse(folder.files.at("config.json"), (path / "config.json").string());
  models::check_layers(*folder.weights, config, models::family_of(config));
  describe_config(config, out);
  out.tensors = tensors_of(*folder.weights, options.statistics);
  out.facts.emplace_back("parameters",
                         fmt::format("{:.1f} million", static_cast<double>(parameters_of(out.tensors)) * 1e-6));
  std::string files;
  for (const auto& [name, content] : folder.files) files += (files.empty() ? "" : ", ") + name;
  out.facts.emplace_back("files", files);
  std::optional<DType> stored;
  if (fs::is_directory(path)) stored = models::quantised_type(*folder.weights);
  if (stored) out.facts.emplace_back("weights", std::string(models::quantised_name(*stored)));
  for (const DType weights : {DType::f32, DType::f16, DType::i8, DType::i4})
    out.memory.emplace_back(weights == DType::i8   ? "int8"
                            : weights == DType::i4 ? "int4"
                                                   : std::string(name(weights)),
                            parameter_bytes(graph_of_model(config, weights, 1)));
  out.graph = graph_of_model(config, stored.value_or(DType::f32), options.tokens);
  compile_graph(options, out);
}

void describe_checkpoint(const fs::path& path, const InspectOptions& options, Inspection& out) {
  const SafeTensors file = SafeTensors::open(path);
  out.tensors = tensors_of(file, options.statistics);
  out.facts.emplace_back("tensors", std::to_string(out.tensors.size()));
  out.facts.emplace_back("values",
                         fmt::format("{:.1f} million", static_cast<double>(parameters_of(out.tensors)) * 1e-6));
  for (const auto& [key, value] : file.metadata())
    out.facts.emplace_back(key, value.size() > 80 ? value.substr(0, 77) + "…" : value);
}

void describe_program(const fs::path& path, Inspection& out) {
  ProgramFile file = load_program(path);
  out.facts.emplace_back("compiled for", file.target);
  for (const PersistentTensor& tensor : file.storage) {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 1;
    for (const Dim& dim : tensor.shape) {
      shape.push_back(dim.upper_bound());
      elements *= shape.back();
    }
    out.tensors.push_back({tensor.name, std::string(name(tensor.dtype)), shape, elements * bits(tensor.dtype) / 8, {}});
  }
  for (const ProgramEntry& entry : file.entries) {
    std::int64_t arenas = 0;
    for (const std::int64_t bytes : entry.program.arenas) arenas += bytes;
    const auto& program = entry.program;
    const std::size_t steps = program.gpu.emitted ? program.gpu.steps.size() : program.cpu.dispatches.size();
    out.facts.emplace_back("entry " + entry.name,
                           fmt::format("{} kernels, {} of activations", steps, readable_bytes(arenas)));
  }
  out.programs = std::move(file.entries);
}

bool begins_with(const fs::path& path, std::string_view text) {
  const FileReader file(path);
  if (file.size() < text.size()) return false;
  std::string begin(text.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin == text;
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Inspection inspect(const fs::path& path, const InspectOptions& options) {
  Inspection out{.kind = {},
                 .path = path.string(),
                 .facts = {},
                 .tensors = {},
                 .memory = {},
                 .graph = {},
                 .programs = {},
                 .times = {}};
  if (fs::is_directory(path) && fs::exists(path / "config.json")) {
    out.kind = "model";
    describe_model(path, options, out);
  } else if (fs::is_directory(path)) {
    out.kind = "checkpoint";
    describe_checkpoint(path, options, out);
  } else if (path.extension() == ".gguf") {
    out.kind = "GGUF model";
    describe_model(path, options, out);
  } else if (begins_with(path, "JERBOAPF")) {
    out.kind = "program";
    describe_program(path, out);
  } else {
    out.kind = "checkpoint";
    describe_checkpoint(path, options, out);
  }
  return out;
}

nlohmann::ordered_json to_json(const Inspection& inspection) {
  nlohmann::ordered_json json{{"kind", inspection.kind}, {"path", inspection.path}};
  for (const auto& [name, value] : inspection.facts) json["facts"][name] = value;
  for (const auto& [name, bytes] : inspection.memory) json["memory"][name] = bytes;
  json["tensors"] = nlohmann::ordered_json::array();
  for (const InspectedTensor& tensor : inspection.tensors) {
    nlohmann::ordered_json row{
        {"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes}};
    if (const auto& statistics = tensor.statistics)
      row["statistics"] = {{"min", statistics->least},   {"max", statistics->most},
                           {"mean", statistics->mean},   {"std", statistics->deviation},
                           {"zeros", statistics->zeros}, {"not_finite", statistics->not_finite}};
    json["tensors"].push_back(std::move(row));
  }
  for (const ProgramEntry& entry : inspection.programs) {
    auto kernels = nlohmann::ordered_json::array();
    for (const GpuStep& step : entry.program.gpu.steps) kernels.push_back(step.label);
    if (!entry.program.gpu.emitted)
      for (const Dispatch& dispatch : entry.program.cpu.dispatches) kernels.push_back(dispatch.parts.front().label);
    json["programs"][entry.name] = {{"kernels", kernels}, {"arena_bytes", entry.program.arenas}};
  }
  for (const KernelTime& time : inspection.times)
    json["times"].push_back({{"label", time.label}, {"kernel", time.kernel}, {"seconds", time.seconds}});
  return json;
}

}  // namespace jerboa::cli
