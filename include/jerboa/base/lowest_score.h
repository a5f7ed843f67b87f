#pragma once

namespace jerboa {

/// The score of what is hidden or must not be chosen: its exponential is 0. Finite, because shaders may assume that
/// values are, and so that differences with it are too.
inline constexpr double lowest_score = -1e30;

}  // namespace jerboa
