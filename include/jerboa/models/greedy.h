#pragma once

#include <jerboa/ir/graph.h>
#include <jerboa/models/family.h>

// Greedy decoding that stays on the device: the token to feed next, its position and the length of the sequence are
// states that every run reads and updates, so that steps can be submitted one after another without waiting for a
// result.
namespace jerboa::models {

struct GreedyOptions {
  CacheOptions cache = {};
  DType weights = DType::f32;  ///< as in GraphInputs
};

/// The states of the loop.
inline constexpr const char* greedy_token = "greedy.token";        ///< i32[1, 1]: the token that the next step feeds
inline constexpr const char* greedy_position = "greedy.position";  ///< i32[1, 1]: its position
inline constexpr const char* greedy_length = "greedy.length";      ///< i32[1]: of the sequence, including that token

/// Feeds a prompt, or the next piece of it, from the inputs ids and positions, i32[1, time], and lengths, i32[1], and
/// makes the most likely token after it the next one to feed. Output: "token", i32[1].
Graph greedy_prompt_graph(const Config& config, const Dim& time, const GreedyOptions& options);

/// Feeds one token and makes the most likely token after it the next one to feed. No inputs; output: "token", i32[1].
Graph greedy_step_graph(const Config& config, const GreedyOptions& options);

}  // namespace jerboa::models
