#pragma once

namespace jerboa {

/// The score of elements that are hidden or must not be chosen: its exponential is 0. Finite, because shaders may
/// assume that values are, and so that differences with it are too.
inline constexpr double lowest_score = -1e30;

/// The log-sum-exp of a query's scores in attention if it sees no keys: below all others, but finite.
inline constexpr double unseen_lse = -3.4e38;

}  // namespace jerboa
