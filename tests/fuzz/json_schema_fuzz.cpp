// A schema (or, after a first byte of '/', a regular expression) that is not trusted compiles or is refused, and text
// sampled under it can be parsed as JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include <jerboa/generate/sampler.h>

namespace {

using namespace jerboa;

std::shared_ptr<const Vocabulary> bytes_vocabulary() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  for (const char* piece : {"", "{\"", "\":", "true", "[[", "\\u", "12", "\xC3"}) tokens.emplace_back(piece);
  return std::make_shared<const Vocabulary>(tokens, std::vector<int>{256});
}

std::string generate(const std::shared_ptr<const Grammar>& grammar, std::uint64_t seed) {
  static const auto vocabulary = bytes_vocabulary();
  const auto constraint = make_constraint(grammar, vocabulary);
  CounterRandom random(seed);
  std::string text;
  for (int left = 40; left > -2000 && !(left < 0 && constraint->complete()); --left) {
    const TokenMask& mask = constraint->allowed(left > 1 ? left : 1);
    std::size_t token = random.next() % vocabulary->size();
    while (!mask.allows(token)) token = (token + 1) % vocabulary->size();
    constraint->accept(static_cast<int>(token));
    if (token == 256) return text;
    text += vocabulary->bytes(static_cast<int>(token));
  }
  return constraint->complete() ? text : std::string("null");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    if (!input.empty() && input[0] == '/') {
      generate(compile_regex(input.substr(1)), size);
    } else {
      const std::string text = generate(compile_json_schema_text(input), size);
      if (!nlohmann::json::accept(text)) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
