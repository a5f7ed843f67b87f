#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <jerboa/language/runner.h>

namespace jerboa::language {

/// A small model that guesses how texts go on, for a larger one to verify.
class Drafter {
 public:
  /// Throws UsageError if their tokens differ, or if the model has a runner already.
  Drafter(std::shared_ptr<Model> drafts_with, const Model& drafts_for);

  struct Request {
    std::vector<std::int32_t> text;  ///< the tokens so far
    int count = 0;                   ///< how many to guess
  };
  /// The likeliest continuation of each text, all computed together. It is shorter, or empty, where the small model
  /// would end the text or has no room for it. Throws if the model cannot be run.
  std::vector<std::vector<std::int32_t>> propose(std::vector<Request> requests);

 private:
  Runner runner_;
  std::int64_t vocabulary_;  // of the model that it guesses for
};

}  // namespace jerboa::language
