#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <jerboa/language/runner.h>

namespace jerboa::language {

/// A small draft model that guesses how sequences continue, for a larger model to verify (speculative decoding).
class Drafter {
 public:
  /// Throws UsageError if the two vocabularies differ, or if the draft model has a runner already.
  Drafter(std::shared_ptr<Model> drafts_with, const Model& drafts_for);

  struct Request {
    std::vector<std::int32_t> text;  ///< the tokens so far
    int count = 0;                   ///< how many to guess
  };
  /// The greedy continuation of each sequence, all computed in one batch. It is shorter, or empty, where the draft
  /// model would end the sequence or where its context is full. Throws if the draft model cannot be run.
  std::vector<std::vector<std::int32_t>> propose(std::vector<Request> requests);

 private:
  Runner runner_;
  std::int64_t vocabulary_;  // of the model that verifies
};

}  // namespace jerboa::language
