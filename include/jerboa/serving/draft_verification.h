#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <jerboa/generate/random.h>

namespace jerboa::serving {

/// What the model keeps of a draft.
struct Verified {
  int accepted = 0;        ///< how many of the drafted tokens
  std::int32_t token = 0;  ///< the model's own token after them
};

/// Keeps the drafted tokens that the model chose too. `chosen` holds the model's choice after the text and after each
/// drafted token, so one more than `draft`. If each choice is the likeliest token, the text is the one that the model
/// writes alone; if each is drawn from the model's distribution, so is the text, as long as the draft depends only on
/// the text before it (prompt lookup, a greedy draft model).
Verified verify_choices(std::span<const std::int32_t> draft, std::span<const std::int32_t> chosen);

/// The same for tokens drawn from a draft model's distribution, by rejection: a drafted token is kept with probability
/// min(1, p / q), and the first one that is not is replaced by a draw from max(p - q, 0). The text is then distributed
/// as the model's own, whatever the draft model. `model` holds a distribution over the vocabulary for each drafted
/// token and one more, row by row; `drafter` one for each drafted token. Throws UsageError if the sizes do not fit.
Verified verify_draws(std::span<const std::int32_t> draft, std::span<const float> model, std::span<const float> drafter,
                      CounterRandom& random);

}  // namespace jerboa::serving
