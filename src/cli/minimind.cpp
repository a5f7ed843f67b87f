#include "cli/minimind.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>

#include "cli/onnx.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

class MinimindWeights {
 public:
  MinimindWeights(const OnnxGraph& graph, std::string file) : graph_(graph), file_(std::move(file)) {}

  /// Adds weights that are stored as (q - zero_point) * scale, with one scale and one zero point per tensor.
  void add_quantised(const std::string& name, const std::string& base, bool transpose) {
    const OnnxTensor& stored = constant(base + "_quantized");
    if (stored.shape.size() != 2) fail(base, "is not a matrix");
    std::vector<float> values = onnx_values(stored, base);
    const std::vector<float> scale = onnx_values(constant(base + "_scale"), base);
    const std::vector<float> zero = onnx_values(constant(base + "_zero_point"), base);
    const auto rows = static_cast<std::size_t>(stored.shape[0]), columns = static_cast<std::size_t>(stored.shape[1]);
    const bool per_column = scale.size() == columns && columns > 1;
    if (values.size() != rows * columns || scale.size() != zero.size() || (!per_column && scale.size() != 1))
      fail(base, "does not have one scale per tensor or column");
    std::vector<float> out(values.size());
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column) {
        const std::size_t group = per_column ? column : 0;
        out[transpose ? column * rows + row : row * columns + column] =
            (values[row * columns + column] - zero[group]) * scale[group];
      }
    add(name,
        transpose ? std::vector<std::int64_t>{stored.shape[1], stored.shape[0]}
                  : std::vector<std::int64_t>{stored.shape[0], stored.shape[1]},
        std::move(out));
  }

  void add_plain(const std::string& name) {
    const OnnxTensor& stored = constant(name);
    add(name, stored.shape, onnx_values(stored, name));
  }

  void write(const fs::path& path) const {
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : tensors_)
      views.push_back(view_of(name, tensor.shape, std::span<const float>(tensor.values)));
    write_safetensors(path, views, {{"format", "pt"}});
  }

 private:
  struct Values {
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };

  const OnnxTensor& constant(const std::string& name) const {
    const auto found = graph_.constants.find(name);
    if (found == graph_.constants.end()) fail(name, "is missing");
    return found->second;
  }
  [[noreturn]] void fail(const std::string& name, std::string_view what) const {
    throw FileError(fmt::format("{}: {} {}", file_, name, what));
  }
  void add(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values) {
    tensors_[name] = {std::move(shape), std::move(values)};
  }

  const OnnxGraph& graph_;
  std::string file_;
  std::map<std::string, Values> tensors_;
};

// The node "/model/layers.0/mlp/up_proj/MatMul_quant" multiplies with model.layers.0.mlp.up_proj.weight.
std::string parameter_of(std::string node) {
  if (const auto at = node.find("/MatMul_quant"); at != std::string::npos) node.erase(at);
  if (node.starts_with('/')) node.erase(0, 1);
  std::replace(node.begin(), node.end(), '/', '.');
  return node + ".weight";
}

}  // namespace

void convert_minimind(const fs::path& from, const fs::path& to) {
  const fs::path package = from / "0", file = package / "onnx" / "model_quantized.onnx";
  const FileContent content(file);
  const OnnxGraph graph = read_onnx(content.bytes(), file.string());
  MinimindWeights weights(graph, file.string());
  constexpr std::string_view suffix = "_quantized";
  for (const OnnxNode& node : graph.nodes)
    if (node.op == "MatMulInteger" && node.inputs.size() > 1 && node.inputs[1].ends_with(suffix))
      weights.add_quantised(parameter_of(node.name), node.inputs[1].substr(0, node.inputs[1].size() - suffix.size()),
                            true);
  weights.add_quantised("model.embed_tokens.weight", "model.embed_tokens.weight", false);
  for (const auto& [name, tensor] : graph.constants)
    if (name.ends_with("norm.weight")) weights.add_plain(name);

  auto config = nlohmann::ordered_json::parse(FileContent(package / "config.json").text());
  config["tie_word_embeddings"] = false;  // the two copies were quantised separately
  config["torch_dtype"] = "float32";
  config.erase("dtype");
  fs::create_directories(to);
  weights.write(to / "model.safetensors");
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"})
    if (fs::exists(package / name)) fs::copy_file(package / name, to / name);
  write_file_atomically(to / "config.json", config.dump(2) + "\n");  // written last: a folder that has it is complete
}

}  // namespace jerboa::cli
