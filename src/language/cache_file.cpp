#include "language/cache_file.h"

#include <algorithm>
#include <cstring>

#include <jerboa/io/safetensors.h>

#include "language/cache_content.h"

namespace jerboa::language {
namespace {

// The blocks to load, of every layer and in their order.
TensorMap chosen(const TensorMap& values, const std::vector<serving::RestoredBlock>& restored) {
  TensorMap out;
  if (restored.empty()) return out;
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

std::vector<serving::Block> places_of(const std::vector<serving::RestoredBlock>& restored) {
  std::vector<serving::Block> blocks;
  for (const serving::RestoredBlock& each : restored) blocks.push_back(each.block);
  return blocks;
}

void fill(const serving::Restored& restored, const CacheContent& content, Model& model) {
  model.write_blocks(places_of(restored.blocks), chosen(content.blocks, restored.blocks));
  for (std::size_t group = 0; group < content.windowed.size(); ++group) {
    const auto& some = restored.windowed[group];
    model.write_blocks(places_of(some), chosen(content.windowed[group], some), group);
  }
  if (restored.state != serving::no_slot) model.write_states(std::span(&restored.state, 1), content.states);
}

}  // namespace

std::int64_t write_cache_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                              serving::Scheduler& scheduler, Model& model) {
  const serving::SavedTable saved = scheduler.save("", tokens);
  TensorMap values = model.read_blocks(saved.blocks);
  for (std::size_t group = 0; group < saved.windowed.size(); ++group)
    values.merge(model.read_blocks(saved.windowed[group].blocks, group));
  if (saved.state != serving::no_slot) values.merge(model.read_states(std::span(&saved.state, 1)));
  const auto known = tokens.first(static_cast<std::size_t>(saved.length));
  std::vector<TensorView> views{view_of(tokens_of_cache, {saved.length}, known)};
  for (const auto& [name, blocks] : values)
    views.push_back({name, stored_type_of_cache(blocks.dtype()), blocks.shape(), blocks.bytes()});
  write_safetensors(path, views, {{"format", cache_format}, {"model", model.fingerprint()}});
  return saved.length;
}

std::int64_t read_cache_file(const std::filesystem::path& path, serving::Scheduler& scheduler, Model& model) {
  const int block = model.cache().block;
  const bool is_recurrent = model.scheduling().state_slots > 0;
  CacheForm form{.model = model.fingerprint(),
                 .vocabulary = model.vocabulary_size(),
                 .block = block,
                 .blocks = model.read_blocks({}),
                 .states = is_recurrent ? model.read_states({}) : TensorMap()};
  for (std::size_t group = 0; group < model.cache().windowed.size(); ++group)
    form.windowed.push_back({model.read_blocks({}, group), scheduler.reach(group)});
  const CacheContent content = cache_content(SafeTensors::open(path), form);
  const std::vector<std::int32_t>& tokens = content.tokens;
  serving::SavedTable saved{.length = std::ssize(tokens),
                            .block_size = block,
                            .blocks = std::vector<serving::Block>(tokens.size() / static_cast<std::size_t>(block)),
                            .state = content.states.empty() ? serving::no_slot : 0};
  for (const TensorMap& layers : content.windowed) {
    const std::int64_t count = layers.begin()->second.shape()[0];
    saved.windowed.push_back(
        {std::ssize(saved.blocks) - count, std::vector<serving::Block>(static_cast<std::size_t>(count))});
  }
  const serving::Restored restored = scheduler.restore("", tokens, saved);
  try {
    fill(restored, content, model);
  } catch (...) {
    scheduler.clear_prefixes();  // their blocks have not been filled, so no sequence may find them
    throw;
  }
  return restored.tokens;
}

}  // namespace jerboa::language
