#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace jerboa::memory {

struct ChunkOptions {
  std::int64_t tokens = 200;  ///< limit of a chunk's size
  std::int64_t overlap = 25;  ///< limit of the tokens that a chunk repeats from the end of the one before
  /// Returns the number of tokens in a text.
  std::function<std::int64_t(std::string_view)> count = {};
};

/// A part of a document, the unit of search.
struct Chunk {
  std::size_t begin = 0;  ///< in bytes
  std::string_view text;  ///< without white space around it
};

/// Splits valid UTF-8 at the ends of sentences and paragraphs if possible, otherwise between words and, as a last
/// resort, between characters.
std::vector<Chunk> split_text(std::string_view text, const ChunkOptions& options);

}  // namespace jerboa::memory
