#include "cli/random_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>

#include "base/in_parallel.h"
#include "cli/interrupt.h"
#include "cli/random_weights.h"
#include "models/model_graph.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

// The tensors of a checkpoint of this model in bf16.
std::vector<io::TensorPlace> tensors_of(const models::Config& config) {
  const Graph graph = models::graph_of(config, models::family_of(config), DType::bf16);
  std::vector<io::TensorPlace> tensors;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || !tensor.tied_to.empty()) continue;
    const Sizes shape = evaluate(tensor.type.shape, {});
    const auto bytes = static_cast<std::uint64_t>(element_count(shape)) * sizeof(std::uint16_t);
    tensors.push_back({tensor.name, StoredType::BF16, shape, 0, bytes});
  }
  return tensors;
}

std::uint64_t bytes_of(const std::vector<io::TensorPlace>& tensors) {
  std::uint64_t bytes = 0;
  for (const io::TensorPlace& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

// Several shards for each writing thread, but none that is needlessly small.
std::vector<std::vector<io::TensorPlace>> in_shards(const std::vector<io::TensorPlace>& tensors) {
  constexpr std::uint64_t least_bytes = 64 << 20;
  const std::uint64_t threads = std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t most = std::max(least_bytes, bytes_of(tensors) / (4 * threads));
  std::vector<std::vector<io::TensorPlace>> shards(1);
  for (const io::TensorPlace& tensor : tensors) {
    if (!shards.back().empty() && bytes_of(shards.back()) + tensor.bytes > most) shards.emplace_back();
    shards.back().push_back(tensor);
  }
  return shards;
}

void write_shard(const fs::path& path, const std::vector<io::TensorPlace>& tensors) {
  constexpr std::uint64_t max_at_once = 16 << 20;
  std::ofstream file(path, std::ios::binary);
  const std::string header = io::encode_header(tensors, {});
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  RandomWeights random;
  for (std::uint64_t left = bytes_of(tensors); left > 0;) {
    const std::uint64_t some = std::min(left, max_at_once);
    const auto bytes = random.bytes(DType::bf16, false, static_cast<std::int64_t>(some));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(some));
    left -= some;
    end_if_interrupted();
  }
  file.close();
  if (!file) throw FileError(fmt::format("{}: cannot write (is the disk full?)", path.string()));
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw FileError(fmt::format("{}: cannot write", path.string()));
}

// A made-up vocabulary of the model's size, so that reading it takes as long as reading a real one.
std::string tokenizer_file(std::int64_t tokens) {
  nlohmann::json vocabulary;
  for (std::int64_t i = 0; i < tokens; ++i) vocabulary[fmt::format("t{}", i)] = i;
  return nlohmann::json{{"version", "1.0"},
                        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
                        {"decoder", {{"type", "ByteLevel"}}}}
      .dump();
}

}  // namespace

RandomModel::RandomModel(const models::Config& config) : config_(config), tensors_(tensors_of(config)) {}

std::uint64_t RandomModel::bytes() const { return bytes_of(tensors_); }

std::vector<fs::path> RandomModel::write(const fs::path& folder) const {
  write_file(folder / "config.json", config_.to_json());
  write_file(folder / "tokenizer.json", tokenizer_file(config_.size("vocab_size")));
  const auto shards = in_shards(tensors_);
  std::vector<fs::path> files;
  nlohmann::json places = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    files.push_back(folder / fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
    for (const io::TensorPlace& tensor : shards[i]) places[tensor.name] = files.back().filename().string();
  }
  write_file(folder / "model.safetensors.index.json", nlohmann::json{{"weight_map", places}}.dump());
  detail::in_parallel(std::ssize(shards), 1, [&](std::int64_t first, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(end); ++i)
      write_shard(files[i], shards[i]);
  });
  return files;
}

}  // namespace jerboa::cli
