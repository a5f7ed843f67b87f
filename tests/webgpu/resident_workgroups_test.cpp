#include "backend/webgpu/resident_workgroups.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace jerboa::webgpu {
namespace {

TEST(ResidentWorkgroups, AreCountedOnceForADevice) {
  const test::TempFolder folder;
  const auto device = GpuDevice::open({});
  PipelineCache cache(folder / "counts");
  const int count = resident_workgroups(*device, &cache);
  EXPECT_GE(count, 1);
  EXPECT_EQ(cache.statistics().stored, 1);
  EXPECT_EQ(resident_workgroups(*device, &cache), count);
  EXPECT_EQ(cache.statistics().hits, 1);
}

// Where the workgroups that are counted do not fit, nothing is known.
TEST(ResidentWorkgroups, AreUnknownWithoutEnoughMemory) {
  Target target = Target::webgpu_default();
  target.workgroup_bytes = 16384;
  const auto device = GpuDevice::open({.target = target});
  EXPECT_EQ(measure_resident_workgroups(*device), 0);
}

}  // namespace
}  // namespace jerboa::webgpu
