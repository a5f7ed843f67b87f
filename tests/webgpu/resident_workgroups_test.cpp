#include "backend/webgpu/resident_workgroups.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "support/temp_folder.h"

namespace jerboa::webgpu {
namespace {

// Gives these numbers one after another, and the last one from then on.
std::function<int()> counts(std::vector<int> numbers) {
  return [numbers = std::move(numbers), next = std::size_t{0}]() mutable {
    return numbers[std::min(next++, numbers.size() - 1)];
  };
}

TEST(ResidentWorkgroups, AreCountedOnceForADevice) {
  const test::TempFolder folder;
  PipelineCache cache(folder / "counts");
  EXPECT_EQ(known_count(&cache, "a", counts({264})), 264);
  EXPECT_EQ(cache.statistics().stored, 1);
  EXPECT_EQ(known_count(&cache, "a", counts({132})), 264);
  EXPECT_EQ(cache.statistics().hits, 1);
  EXPECT_EQ(known_count(&cache, "b", counts({0})), 0) << "always more than are counted";
  EXPECT_EQ(cache.statistics().stored, 2);
}

TEST(ResidentWorkgroups, AreCountedAgainOnADeviceThatWasBusy) {
  EXPECT_EQ(known_count(nullptr, "a", counts({31, 264})), 264);
}

// The forms of kernels would depend on what else the device does, and so would their bits.
TEST(ResidentWorkgroups, AreUnknownAndNotKeptWhileCountsVary) {
  const test::TempFolder folder;
  PipelineCache cache(folder / "counts");
  int next = 100;
  EXPECT_EQ(known_count(&cache, "a", [&] { return ++next; }), 0);
  EXPECT_EQ(cache.statistics().stored, 0);
  EXPECT_EQ(known_count(&cache, "a", counts({264})), 264);
}

TEST(ResidentWorkgroups, AreCountedByAShader) {
  const test::TempFolder folder;
  const auto device = GpuDevice::open({});
  PipelineCache cache(folder / "counts");
  const int count = resident_workgroups(*device, &cache);
  EXPECT_EQ(cache.statistics().stored, count > 0 ? 1 : 0);  // the threads of a software driver may be busy
}

// Where the workgroups that are counted do not fit, nothing is known.
TEST(ResidentWorkgroups, AreUnknownWithoutEnoughMemory) {
  Target target = Target::webgpu_default();
  target.workgroup_bytes = 16384;
  const auto device = GpuDevice::open({.target = target});
  EXPECT_EQ(resident_workgroups(*device, nullptr), 0);
}

}  // namespace
}  // namespace jerboa::webgpu
