#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

std::vector<CacheSpec> cache_specs(const Config& config, const CacheOptions& options) {
  std::vector<CacheSpec> specs;
  trace([&] {
    const SiteScope scope(CallSite{});
    GraphInputs inputs{.cache = options, .last = 1, .cache_specs = &specs};
    inputs.tensors["ids"] = tensor_input("ids", {1, 1}, DType::i32);
    inputs.tensors["positions"] = tensor_input("positions", {1, 1}, DType::i32);
    inputs.tensors["lengths"] = tensor_input("lengths", {1}, DType::i32);
    if (options.block > 0)
      inputs.tensors["table"] = tensor_input("table", {1, options.capacity / options.block}, DType::i32);
    for (const WindowedBlocks& layers : options.windowed) {
      const std::string table = table_name(layers.window);
      inputs.tensors[table] = tensor_input(table, {1, options.capacity / options.block}, DType::i32);
    }
    if (options.slots > 0) inputs.tensors["slots"] = tensor_input("slots", {1}, DType::i32);
    output("logits", family_of(config).logits(config, inputs));
  });
  return specs;
}

}  // namespace jerboa::models
