#pragma once

#include <string>
#include <vector>

#include <jerboa/text/tokenizer.h>

namespace jerboa::detail {

/// The bytes that each of `count` tokens adds to a text, not necessarily whole characters; empty for special tokens and
/// unknown ids.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer, std::int64_t count);

}  // namespace jerboa::detail
