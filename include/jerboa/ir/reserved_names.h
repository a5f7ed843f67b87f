#pragma once

#include <string>

namespace jerboa {

// The library's own states are identified by their names. A user's parameter or state with such a name would be
// mistaken for one of them: it would not be listed or saved, or would be reset.

/// The prefix of the states that hold the last gradients.
inline constexpr const char* gradient_prefix = "grad/";
/// The prefix of the states that hold f16 copies of parameters.
inline constexpr const char* half_copy_prefix = "f16/";
/// The prefix of states in checkpoints, where parameters have their own names.
inline constexpr const char* stored_state_prefix = "jerboa.state/";
/// The state that counts the steps of an optimizer without a name; "NAME/step" counts those of one with a name.
inline constexpr const char* step_state = "step";
/// States of the loss scaling, which are saved in checkpoints.
inline constexpr const char* loss_scale_state = "loss_scale";
inline constexpr const char* loss_scale_age_state = "loss_scale_age";  ///< updates since it last changed
/// The state that random ops draw from: u32[2], the session's seed and a count of steps.
inline constexpr const char* random_state = "rng";

namespace detail {
/// The reason why a user's parameter or state must not have this name, "names that begin with grad/ are those of
/// gradients"; empty if it may.
std::string why_reserved(const std::string& name);
}  // namespace detail

}  // namespace jerboa
