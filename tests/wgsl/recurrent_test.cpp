#include <gtest/gtest.h>

#include "support/recurrent_checks.h"
#include "wgsl/shared_device.h"

// Recurrences on WebGPU, in the form for software drivers and in those for GPUs. Without an adapter the tests fail and
// say why.
namespace jerboa::test::recurrent_test {
namespace {

const Device& device(bool software) {
  return shared_device(software, [](bool is_software) {
    WebGpuOptions options;
    options.target = Target::webgpu_default();
    options.target->software = is_software;
    return options;
  });
}

TEST(Recurrence, InPiecesEqualsTheWhole) { expect_pieces_equal_the_whole(device(true)); }
TEST(Recurrence, InPiecesEqualsTheWholeOnGpus) { expect_pieces_equal_the_whole(device(false)); }

}  // namespace
}  // namespace jerboa::test::recurrent_test
