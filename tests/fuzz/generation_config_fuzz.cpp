// Whatever generation_config.json says, it yields options that a sampler accepts and tokens that the model has, or is
// refused with a FileError.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <jerboa/base/error.h>
#include <jerboa/generate/sampler.h>

#include "steps/generation_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jerboa;
  static const auto model = models::Config::parse(R"({"vocab_size": 1000, "eos_token_id": 2})");
  try {
    const auto file = models::Config::parse({reinterpret_cast<const char*>(data), size}, "generation_config.json");
    const auto config = detail::generation_config(file, model);
    for (const int token : config.end_tokens)
      if (token < 0 || token >= 1000) std::abort();
    const Sampler sampler(config.sampling);
  } catch (const FileError&) {
  }
  return 0;
}
