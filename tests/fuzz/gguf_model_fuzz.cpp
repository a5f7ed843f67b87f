// Whatever the bytes, a model from a GGUF file is refused with a FileError, or its config, its tokenizer's files and
// its weights can be read.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/json.h>
#include <jerboa/models/config.h>
#include <jerboa/models/gguf_model.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jerboa;
  try {
    const auto model = models::read_gguf_model(Gguf::from_bytes(std::as_bytes(std::span(data, size)), "fuzz"));
    models::Config::parse(model.config);
    models::Config::parse(model.generation_config);
    models::Config::parse(model.tokenizer_config);
    if (model.tokenizer_name == "tokenizer.json") JsonValue::parse(model.tokenizer);
    for (const auto& name : model.weights->names()) {
      const TensorEntry& entry = model.weights->entry(name);
      std::size_t elements = 1;
      for (const auto length : entry.shape) elements *= static_cast<std::size_t>(length);
      if (elements != entry.elements()) std::abort();
      std::vector<float> values(elements);
      model.weights->read_f32(name, values);
      std::vector<std::byte> bytes(entry.bytes), quantised(elements);
      model.weights->read(name, bytes);
      std::vector<std::uint16_t> scales(elements / 32), mins(elements / 32);
      model.weights->read_quantised(name, DType::i8, quantised, scales, {});
      quantised.resize(elements / 2);
      model.weights->read_quantised(name, DType::i4, quantised, scales, mins);
    }
  } catch (const FileError&) {
  }
  return 0;
}
