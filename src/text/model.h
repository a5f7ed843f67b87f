#pragma once

#include <variant>

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/wordpiece.h"

namespace jerboa {

/// A tokenizer model, which turns a word into tokens.
using Model = std::variant<BpeModel, WordPieceModel, WordLevelModel, UnigramModel>;

}  // namespace jerboa
