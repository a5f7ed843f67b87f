#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/serving/step.h>

#include "steps/step_graph.h"

namespace jerboa::language {

/// The inputs of a run by name.
using RunInputs = std::map<std::string, HostTensor>;

/// Whether any of the rows that want a token is sampled.
Drawing drawing_of(const serving::Step& step);
/// The most detailed log-probabilities that any of them wants.
Logprobs logprobs_of(const serving::Step& step);

/// The inputs of a step's graph. `carries`: it takes over tokens of the previous step; `padding_slot` is the slot for
/// the recurrent states of padding; `windowed` are the groups of layers with windows.
RunInputs inputs_of(const serving::Step& step, const EntryKey& key, bool carries, std::int32_t padding_slot,
                    std::span<const models::WindowedBlocks> windowed);

/// The outputs of a step's graph that its rows want.
std::vector<std::string> outputs_to_read(const serving::Step& step, const EntryKey& key);
/// The type of such an output.
DType result_type(std::string_view output);
/// A step's results, from the outputs that a host read.
serving::StepResults results_of(const serving::Step& step, const std::map<std::string, HostTensor>& outputs);

HostTensor integers(Sizes shape, std::span<const std::int32_t> values);

}  // namespace jerboa::language
