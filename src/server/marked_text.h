#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <jerboa/generate/stop.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa::server {

/// Decodes the tokens of an answer including special tokens, which call formats consist of; the text of a stream leaves
/// them out.
class MarkedText {
 public:
  MarkedText(const Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt, const std::vector<std::string>& stop)
      : decoder_(tokenizer, {.skip_special = false}), stop_(stop) {
    for (const std::int32_t token : prompt) decoder_.push(token);
  }
  std::string push(std::int32_t token) { return stop_.feed(decoder_.push(token)); }
  std::string finish() { return stop_.stopped() ? std::string() : stop_.feed(decoder_.finish()) + stop_.finish(); }

 private:
  StreamDecoder decoder_;
  StopMatcher stop_;
};

}  // namespace jerboa::server
