// Whatever the bytes, they are refused with a FileError or become a config.json and tensors that match each other.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/config.h>
#include <jerboa/models/llama2c.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jerboa;
  try {
    const models::Llama2cModel model = models::parse_llama2c(std::as_bytes(std::span(data, size)));
    const auto config = models::Config::parse(model.config);
    models::Config::parse(model.generation_config);
    const auto file = encode_safetensors(model.tensors);
    const SafeTensors weights = SafeTensors::from_bytes(file);
    const std::vector<std::int64_t> table{config.size("vocab_size"), config.size("hidden_size")};
    if (weights.entry("model.embed_tokens.weight").shape != table) std::abort();
  } catch (const FileError&) {
  }
  return 0;
}
