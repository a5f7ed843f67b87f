#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <jerboa/text/tokenizer.h>

#include "text/json_view.h"
#include "text/vocab.h"

namespace jerboa {

/// Adds the tokens that a model expects around a text.
class PostProcessor {
 public:
  /// An element of a template: one of the texts, or inserted tokens.
  struct Piece {
    enum class Kind { first, second, tokens } kind = Kind::first;
    std::int32_t type_id = 0;
    std::vector<TokenId> tokens;
  };
  /// The templates for one text and for a pair.
  struct Template {
    std::vector<Piece> single;
    std::vector<Piece> pair;
  };
  /// Excludes white space at the ends of a token from its offsets.
  struct TrimOffsets {
    bool add_prefix_space = true;
  };

  static PostProcessor parse(const JsonView& json);

  void add(Template step) { steps_.emplace_back(std::move(step)); }
  /// How many tokens apply() adds to one text, or to two.
  std::size_t added(bool pair) const;
  /// Joins the encodings of one or two `texts` into one.
  Encoding apply(std::vector<Encoding> encodings, const std::vector<std::string_view>& texts, bool add_special) const;

 private:
  void parse_into(const JsonView& json, int depth);
  std::vector<std::variant<Template, TrimOffsets>> steps_;
};

}  // namespace jerboa
