#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"

namespace jerboa {

/// sentencepiece's precompiled normalization: a double-array trie from character sequences to their replacements.
class Charsmap {
 public:
  /// `where` names the source in errors (FileError).
  Charsmap(std::string_view blob, std::string_view where);
  static Charsmap from_base64(std::string_view text, std::string_view where);

  void apply(AlignedText& text) const;

 private:
  /// The replacement of the shortest prefix of `chunk` in the map.
  std::optional<std::string_view> find(std::string_view chunk) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_;  // each ends with a NUL
};

}  // namespace jerboa
