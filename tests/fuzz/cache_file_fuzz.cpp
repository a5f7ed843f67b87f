// Whatever a cache file contains, it is refused with a FileError, or yields tokens that the model has and as many
// blocks and states as its layers need for them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <jerboa/base/error.h>

#include "language/cache_content.h"

namespace {

using namespace jerboa;

constexpr int reach = 1;

// A model with keys in f16, values in 8 bits, a layer with a window, and a recurrent state.
language::CacheForm form() {
  language::CacheForm form{.model = "some", .vocabulary = 100, .block = 2, .blocks = {}, .states = {}, .windowed = {}};
  form.blocks.emplace("keys", HostTensor(DType::f16, {0, 1, 2, 4}));
  form.blocks.emplace("values", HostTensor(DType::u32, {0, 1, 2, 2}));
  form.windowed.push_back({.blocks = {}, .reach = reach});
  form.windowed[0].blocks.emplace("local", HostTensor(DType::f32, {0, 1, 2, 2}));
  form.states.emplace("state", HostTensor(DType::f32, {0, 3}));
  return form;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const SafeTensors file = SafeTensors::from_bytes(std::as_bytes(std::span(data, size)), "text.safetensors");
    const language::CacheContent content = language::cache_content(file, form());
    for (const std::int32_t token : content.tokens) require(token >= 0 && token < 100);
    const std::int64_t blocks = std::ssize(content.tokens) / 2;
    require(blocks * 2 == std::ssize(content.tokens));
    for (const auto& [name, layer] : content.blocks) require(layer.shape()[0] == blocks);
    require(content.windowed.size() == 1 && content.windowed[0].size() == 1);
    const std::int64_t last = content.windowed[0].at("local").shape()[0];
    require(std::min<std::int64_t>(blocks, reach) <= last && last <= blocks);
    require(content.blocks.size() == 2 && content.states.size() == (blocks > 0 ? 1 : 0));
  } catch (const FileError&) {
  }
  return 0;
}
