#pragma once

#include <jerboa/runtime/device.h>

namespace jerboa::test {

/// Fails a test unless causal_conv1d and linear_attention, with and without the delta rule, give the same results and
/// states on this device in one piece, in pieces and token by token: with padding in front, and in slots of a state
/// that holds something else before.
void expect_pieces_equal_the_whole(const Device& device);

}  // namespace jerboa::test
