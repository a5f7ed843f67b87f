#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace jerboa::memory {

struct ChunkOptions {
  std::int64_t tokens = 200;  ///< of a chunk, at most
  std::int64_t overlap = 25;  ///< tokens that a chunk repeats from the end of the one before, at most
  /// The number of tokens of a text.
  std::function<std::int64_t(std::string_view)> count = {};
};

/// A part of a document that is found as a whole.
struct Chunk {
  std::size_t begin = 0;  ///< in bytes
  std::string_view text;  ///< without white space around it
};

/// Splits a text of valid UTF-8 at the ends of sentences and paragraphs as far as it can, otherwise between words or,
/// if nothing else helps, characters.
std::vector<Chunk> split_text(std::string_view text, const ChunkOptions& options);

}  // namespace jerboa::memory
