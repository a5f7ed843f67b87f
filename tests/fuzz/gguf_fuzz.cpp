// Whatever the bytes, the reader refuses them with a FileError or yields metadata and tensors that can be read, with
// tensors inside the file that match their shapes.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/io/gguf.h>

namespace {

using jerboa::Gguf;

void require(bool holds) {
  if (!holds) std::abort();
}

template <class Action>
void may_refuse(Action action) {
  try {
    action();
  } catch (const jerboa::FileError&) {
  }
}

void read_value(const Gguf& file, const std::string& key) {
  may_refuse([&] { file.text(key); });
  may_refuse([&] { file.integer(key); });
  may_refuse([&] { file.number(key); });
  may_refuse([&] { file.flag(key); });
  may_refuse([&] { file.texts(key); });
  may_refuse([&] { file.integers(key); });
  may_refuse([&] { file.numbers(key); });
}

void read_tensor(const Gguf& file, const std::string& name, std::size_t file_bytes) {
  const jerboa::GgufTensor& tensor = file.tensor(name);
  require(tensor.offset + tensor.bytes <= file_bytes || tensor.bytes == 0);
  std::size_t elements = 1;
  for (const auto size : tensor.shape) elements *= static_cast<std::size_t>(size);
  require(tensor.elements() == elements);
  std::vector<float> values(elements);
  if (elements > 0) file.read_f32(name, values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  may_refuse([&] {
    const Gguf file = Gguf::from_bytes(std::as_bytes(std::span(data, size)), "fuzz");
    for (const std::string& key : file.keys()) read_value(file, key);
    for (const std::string& name : file.names()) read_tensor(file, name, size);
  });
  return 0;
}
