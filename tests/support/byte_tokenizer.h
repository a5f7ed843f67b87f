#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace jerboa::test {

inline std::string utf8(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// A tokenizer whose 256 tokens are the bytes, in the alphabet that GPT-2 writes them in.
inline std::string byte_tokenizer() {
  nlohmann::json vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    vocabulary[utf8(printable ? byte : next++)] = byte;
  }
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                        {"post_processor", nullptr},
                        {"decoder", {{"type", "ByteLevel"}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

}  // namespace jerboa::test
