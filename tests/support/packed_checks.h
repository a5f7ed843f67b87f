#pragma once

#include <jerboa/runtime/device.h>

namespace jerboa::test {

/// Fails a test unless cache_append rounds floats of all magnitudes to the nearest that an 8-bit cache holds, either
/// of two where they are equally near.
void expect_nearest_rows(const Device& device);

}  // namespace jerboa::test
