// Whatever the bytes, they are refused with a FileError or yield values that are inside the file and match their sizes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <jerboa/base/error.h>
#include <jerboa/io/idx.h>

namespace {

void check(std::span<const std::uint8_t> file, std::size_t axes) {
  const jerboa::IdxBytes idx = jerboa::parse_idx(std::as_bytes(file), axes, "file");
  std::size_t count = 1;
  for (const std::int64_t length : idx.shape) count *= static_cast<std::size_t>(length);
  const bool inside =
      idx.values.data() >= file.data() && idx.values.data() + idx.values.size() <= file.data() + file.size();
  if (idx.shape.size() != axes || idx.values.size() != count || !inside) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (std::size_t axes = 0; axes < 4; ++axes) {
    try {
      check({data, size}, axes);
    } catch (const jerboa::FileError&) {
    }
  }
  return 0;
}
