#pragma once

#include <map>
#include <string>

#include <jerboa/base/host_tensor.h>
#include <jerboa/serving/step.h>

#include "steps/step_graph.h"

namespace jerboa::language {

/// The inputs of a run by name.
using RunInputs = std::map<std::string, HostTensor>;

/// Of the rows that want a token, whether any is sampled.
Drawing drawing_of(const serving::Step& step);

/// The inputs of a step's graph. `carries`: it takes over tokens of the previous step; `padding_slot` is where padding
/// keeps its recurrent states.
RunInputs inputs_of(const serving::Step& step, const EntryKey& key, bool carries, std::int32_t padding_slot);

/// What a host read of a step, by row: tokens i32[rows, outputs] if any were drawn, logits f32[rows, outputs,
/// vocabulary] if any row wants them; otherwise empty.
serving::StepResults results_of(const serving::Step& step, std::span<const std::int32_t> tokens,
                                std::span<const float> logits);
/// Whether any row's tokens are drawn on the host.
bool wants_logits(const serving::Step& step);

HostTensor integers(Sizes shape, std::span<const std::int32_t> values);

}  // namespace jerboa::language
