#include "language/cache_content.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/ir/graph.h>
#include <jerboa/ir/packed_cache.h>

namespace jerboa::language {
namespace {

[[noreturn]] void refuse(const SafeTensors& file, const std::string& reason) {
  throw FileError(fmt::format("{}: {}", file.path().string(), reason));
}

const TensorView& view_in(const SafeTensors& file, const std::string& name) {
  if (!file.contains(name)) refuse(file, fmt::format("the cache of a text has {}, but this file does not", name));
  return file.view(name);
}

void check_model(const SafeTensors& file, const CacheForm& form) {
  const auto& metadata = file.metadata();
  const auto format = metadata.find("format"), model = metadata.find("model");
  if (format == metadata.end() || format->second != cache_format || model == metadata.end())
    refuse(file, "this is not a file that save_cache wrote");
  if (model->second != form.model) refuse(file, "the file was saved with another model");
}

std::vector<std::int32_t> tokens_in(const SafeTensors& file, const CacheForm& form) {
  const TensorView& view = view_in(file, tokens_of_cache);
  if (view.type != StoredType::I32 || view.shape.size() != 1) refuse(file, "tokens must be a list of I32");
  std::vector<std::int32_t> tokens(view.elements());
  if (!tokens.empty()) std::memcpy(tokens.data(), view.bytes.data(), view.bytes.size());
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= form.vocabulary)
      refuse(file, fmt::format("there is no token {}; the model has {}", token, form.vocabulary));
  if (std::ssize(tokens) % form.block != 0)
    refuse(file, fmt::format("{} tokens are not a whole number of blocks of {}; load the model with the block size "
                             "that the file was saved with",
                             tokens.size(), form.block));
  return tokens;
}

// Reads `count` blocks or states of each layer, after checking their type and shape against the model's.
std::map<std::string, HostTensor> layers_in(const SafeTensors& file, const std::map<std::string, HostTensor>& layers,
                                            std::int64_t count) {
  std::map<std::string, HostTensor> values;
  for (const auto& [name, like] : layers) {
    Sizes shape = like.shape();
    shape[0] = count;
    const TensorView& view = view_in(file, name);
    if (view.type != stored_type_of_cache(like.dtype()) || view.shape != shape)
      refuse(file, fmt::format("{} is {}{}, but the model's cache needs {}{}; load the model with the options "
                               "that the file was saved with",
                               name, to_string(view.type), to_string(view.shape),
                               to_string(stored_type_of_cache(like.dtype())), to_string(shape)));
    HostTensor layer(like.dtype(), shape);
    if (!view.bytes.empty()) std::memcpy(layer.bytes().data(), view.bytes.data(), view.bytes.size());
    values.emplace(name, std::move(layer));
  }
  return values;
}

// A file need not hold all blocks of layers with windows: the last ones that a sequence needs to go on are enough.
// Older files hold all of them, as do files of models whose context fits into the window.
std::map<std::string, HostTensor> windowed_in(const SafeTensors& file, const CacheForm::Windowed& layers,
                                              std::int64_t count) {
  const std::int64_t needed = std::min<std::int64_t>(count, layers.reach);
  const Sizes& shape = view_in(file, layers.blocks.begin()->first).shape;
  return layers_in(file, layers.blocks, shape.empty() ? needed : std::clamp(shape[0], needed, count));
}

}  // namespace

StoredType stored_type_of_cache(DType dtype) {
  if (dtype == packed_cache) return StoredType::U32;
  return dtype == DType::f16 ? StoredType::F16 : StoredType::F32;
}

CacheContent cache_content(const SafeTensors& file, const CacheForm& form) {
  check_model(file, form);
  CacheContent content{.tokens = tokens_in(file, form), .blocks = {}, .states = {}, .windowed = {}};
  const std::int64_t count = std::ssize(content.tokens) / form.block;
  content.blocks = layers_in(file, form.blocks, count);
  for (const CacheForm::Windowed& layers : form.windowed) content.windowed.push_back(windowed_in(file, layers, count));
  if (count > 0) content.states = layers_in(file, form.states, 1);
  return content;
}

}  // namespace jerboa::language
