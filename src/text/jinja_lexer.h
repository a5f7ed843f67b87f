#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  floating,
  op,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of data, a name, a string (escapes resolved) or an operator
  std::int64_t integer = 0;
  double number = 0;
  int line = 1;
};

/// Cuts a template into tokens, with white space trimmed as transformers sets Jinja up: trim_blocks and lstrip_blocks.
/// Throws TemplateError with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace jerboa::jinja
