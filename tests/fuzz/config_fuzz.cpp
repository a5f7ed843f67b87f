// Whatever config.json says, it becomes a graph whose parameters match a checkpoint, or is refused with an Error, in
// little time and memory. After a NUL byte, the first byte chooses the type of the weights.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace {

using namespace jerboa;

constexpr int max_layers = 6;  // as many as a pattern of layers has; more would test nothing new

DType weights_of(std::string_view rest) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::bf16, DType::i8, DType::i4};
  return rest.empty() ? DType::f32 : types[static_cast<unsigned char>(rest[0]) % std::size(types)];
}

Graph graph_of(const models::Config& config, const models::Family& family, DType weights) {
  return trace([&] {
    const Tensor ids = tensor_input("ids", {1, 4}, DType::i32),
                 positions = tensor_input("positions", {1, 4}, DType::i32);
    const Tensor lengths = tensor_input("lengths", {1}, DType::i32);
    if (family.graphs.decoder == nullptr) {
      for (const auto& [name, result] :
           family.encode(config, {.tensors = {{"ids", ids}, {"lengths", lengths}}, .weights = weights}))
        output(name, result);
      return;
    }
    output("logits", family.logits(config, {.tensors = {{"ids", ids}, {"positions", positions}, {"lengths", lengths}},
                                            .cache = {.capacity = 16, .ring = true, .chunk = 4},
                                            .weights = weights}));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> file = [] {
    const std::vector<float> values(8);
    std::vector<TensorView> views;
    for (const char* layer : {"0", "1", "2"}) {
      views.push_back(view_of(fmt::format("model.layers.{}.mlp.up_proj.weight", layer), {2, 4}, std::span(values)));
      views.push_back(view_of(fmt::format("h.{}.ln_1.weight", layer), {8}, std::span(values)));
    }
    return encode_safetensors(views);
  }();
  static const SafeTensors weights = SafeTensors::from_bytes(file);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), input.size());
  try {
    const auto config = models::Config::parse(input.substr(0, end));
    const models::Family& family = models::family_of(config);
    if (config.count(std::string(family.layer_count)) > max_layers) return 0;
    const Graph graph = graph_of(config, family, weights_of(input.substr(std::min(end + 1, input.size()))));
    models::check_layers(weights, config, family);
    models::check_params(weights, graph, family);
  } catch (const Error&) {
  }
  return 0;
}
