#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <jerboa/text/tokenizer.h>

#include "server/fields.h"

namespace jerboa::server {

/// The limits on tool results that a model reads.
struct ResultRoom {
  const Tokenizer& tokenizer;
  std::int64_t context;  ///< tokens of prompt and answer together
  std::int64_t answer;   ///< tokens that an answer may take
  /// The number of tokens in the prompt for these messages.
  std::function<std::int64_t(const Json& messages)> count;
};

/// Appends the results of a round of calls to the messages. Together they get half of the room that is left in the
/// context; if even then the prompt leaves too little for an answer, all results of this turn are shortened. Returns
/// whether there is room for another round.
bool add_results(Json& messages, Json results, const ResultRoom& room);

/// Shortens a text to this many tokens, and says so at its end.
std::string shortened_to(const Tokenizer& tokenizer, const std::string& text, std::int64_t tokens);

}  // namespace jerboa::server
