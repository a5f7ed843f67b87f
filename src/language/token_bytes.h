#pragma once

#include <string>
#include <vector>

#include <jerboa/text/tokenizer.h>

namespace jerboa::detail {

/// What each of `count` tokens adds to a text, in bytes that need not be whole characters; nothing for special tokens
/// and for ids that the tokenizer does not have.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer, std::int64_t count);

}  // namespace jerboa::detail
