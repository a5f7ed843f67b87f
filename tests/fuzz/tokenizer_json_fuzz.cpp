// The input is a tokenizer.json, then a NUL byte and a text: whatever loads must encode and decode it, and streaming
// must agree with decoding at once. If the first byte is B or M, the file is a tokenizer.bin or a .model instead.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <jerboa/base/error.h>
#include <jerboa/text/tokenizer.h>

#include "text/sentencepiece.h"

namespace {

jerboa::Tokenizer load(std::string_view file) {
  if (file.starts_with('B')) return jerboa::load_llama2c(file.substr(1), "fuzz.bin");
  if (file.starts_with('M')) return jerboa::load_sentencepiece(file.substr(1), "fuzz.model");
  return jerboa::Tokenizer::from_json(file, "fuzz.json");
}

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto end = input.rfind('\0');
  const std::string_view text = end == std::string_view::npos ? "Hello wörld" : input.substr(end + 1);
  try {
    jerboa::Tokenizer tokenizer = load(input.substr(0, end));
    tokenizer.set_padding({});
    const auto encoding = tokenizer.encode(text);
    check(encoding.offsets.size() == encoding.ids.size());
    for (const auto& span : encoding.offsets) check(span.begin <= span.end && span.end <= text.size());
    jerboa::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const auto id : encoding.ids) streamed += stream.push(id);
    check(streamed + stream.finish() == tokenizer.decode(encoding.ids));
    static_cast<void>(tokenizer.encode_pair(text, "two"));
  } catch (const jerboa::Error&) {
  }
  return 0;
}
