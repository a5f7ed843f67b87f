#include "language/cache_file.h"

#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>

namespace jerboa::language {
namespace {

constexpr const char* format_name = "jerboa.cache";
constexpr const char* tokens_name = "tokens";

StoredType stored_type(DType dtype) { return dtype == DType::f16 ? StoredType::F16 : StoredType::F32; }

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw FileError(fmt::format("{}: {}", path.string(), reason));
}

const TensorView& view_in(const SafeTensors& file, const std::string& name) {
  if (!file.contains(name))
    refuse(file.path(), fmt::format("the cache of a text has {}, but this file does not", name));
  return file.view(name);
}

std::vector<std::int32_t> tokens_in(const SafeTensors& file, const Model& model) {
  const TensorView& view = view_in(file, tokens_name);
  if (view.type != StoredType::I32 || view.shape.size() != 1) refuse(file.path(), "tokens must be a list of I32");
  std::vector<std::int32_t> tokens(view.elements());
  std::memcpy(tokens.data(), view.bytes.data(), view.bytes.size());
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= model.vocabulary_size())
      refuse(file.path(), fmt::format("there is no token {}; the model has {}", token, model.vocabulary_size()));
  return tokens;
}

// The blocks of every layer, checked against the model's.
TensorMap blocks_in(const SafeTensors& file, Model& model, std::int64_t count) {
  TensorMap values;
  for (const auto& [name, like] : model.read_blocks({})) {
    Sizes shape = like.shape();
    shape[0] = count;
    const TensorView& view = view_in(file, name);
    if (view.type != stored_type(like.dtype()) || view.shape != shape)
      refuse(file.path(), fmt::format("{} is {}{}, but the model's cache needs {}{}; load the model with the options "
                                      "that the file was saved with",
                                      name, to_string(view.type), to_string(view.shape),
                                      to_string(stored_type(like.dtype())), to_string(shape)));
    HostTensor blocks(like.dtype(), shape);
    std::memcpy(blocks.bytes().data(), view.bytes.data(), view.bytes.size());
    values.emplace(name, std::move(blocks));
  }
  return values;
}

// Those blocks of every layer that are to be loaded, in their order.
TensorMap chosen(const TensorMap& values, const std::vector<serving::RestoredBlock>& restored) {
  TensorMap out;
  for (const auto& [name, all] : values) {
    Sizes shape = all.shape();
    const std::size_t bytes = all.bytes().size() / static_cast<std::size_t>(shape[0]);
    shape[0] = std::ssize(restored);
    HostTensor some(all.dtype(), shape);
    for (std::size_t i = 0; i < restored.size(); ++i)
      std::memcpy(some.bytes().data() + i * bytes, all.bytes().data() + restored[i].saved * bytes, bytes);
    out.emplace(name, std::move(some));
  }
  return out;
}

}  // namespace

std::int64_t write_cache_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                              serving::Scheduler& scheduler, Model& model) {
  const serving::SavedTable saved = scheduler.save("", tokens);
  const TensorMap values = model.read_blocks(saved.blocks);
  const auto known = tokens.first(static_cast<std::size_t>(saved.length));
  std::vector<TensorView> views{view_of(tokens_name, {saved.length}, known)};
  for (const auto& [name, blocks] : values)
    views.push_back({name, stored_type(blocks.dtype()), blocks.shape(), blocks.bytes()});
  write_safetensors(path, views, {{"format", format_name}, {"model", model.fingerprint()}});
  return saved.length;
}

std::int64_t read_cache_file(const std::filesystem::path& path, serving::Scheduler& scheduler, Model& model) {
  const SafeTensors file = SafeTensors::open(path);
  const auto& metadata = file.metadata();
  const auto found = metadata.find("model");
  if (!metadata.contains("format") || metadata.at("format") != format_name || found == metadata.end())
    refuse(path, "this is not a file that save_cache wrote");
  if (found->second != model.fingerprint()) refuse(path, "the file was saved with another model");
  const std::vector<std::int32_t> tokens = tokens_in(file, model);
  const int block = model.cache().block;
  if (std::ssize(tokens) % block != 0)
    refuse(path, fmt::format("{} tokens are not a whole number of blocks of {}; load the model with the block size "
                             "that the file was saved with",
                             tokens.size(), block));
  const std::int64_t count = std::ssize(tokens) / block;
  const TensorMap values = blocks_in(file, model, count);
  const serving::SavedTable saved{std::ssize(tokens), block,
                                  std::vector<serving::Block>(static_cast<std::size_t>(count))};
  const std::vector<serving::RestoredBlock> restored = scheduler.restore("", tokens, saved);
  std::vector<serving::Block> blocks;
  for (const serving::RestoredBlock& each : restored) blocks.push_back(each.block);
  model.write_blocks(blocks, chosen(values, restored));
  return std::ssize(restored) * block;
}

}  // namespace jerboa::language
