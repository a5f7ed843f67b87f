#pragma once

namespace jerboa {

/// The score of what is hidden or must not be chosen: its exponential is 0. Finite, because shaders may assume that
/// values are, and so that differences with it are too.
inline constexpr double lowest_score = -1e30;

/// The logarithm of the sum of a query's weights in attention, if it sees nothing: below all others, but finite.
inline constexpr double unseen_lse = -3.4e38;

}  // namespace jerboa
