#include "base/simd_targets.h"
// After the sets of instructions that are left out:
#include <array>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <limits>

#include <jerboa/base/random.h>

#include "models/round_for_products.h"

// Weights must not depend on the instructions that they are quantised with.
namespace jerboa::models {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

float normal(SplitMix& random) {
  return static_cast<float>(std::sqrt(-2 * std::log(1 - random.uniform())) * std::cos(6.283185307 * random.uniform()));
}

using MakeGroup = std::function<Group(SplitMix&)>;

MakeGroup each(const std::function<float(SplitMix&)>& value) {
  return [value](SplitMix& random) {
    Group group;
    for (float& element : group) element = value(random);
    return group;
  };
}

MakeGroup normal_times(float factor) {
  return each([factor](SplitMix& random) { return factor * normal(random); });
}

// Normal values, one of which is replaced.
MakeGroup with_one(float value) {
  return [value](SplitMix& random) {
    Group group = normal_times(1)(random);
    group[random.next() % group_size] = value;
    return group;
  };
}

// Values of 0.02 or so are as in real weights.
const std::array groups{
    normal_times(0.02F),
    normal_times(3),
    normal_times(1e4F),
    normal_times(1e-4F),
    normal_times(1e-7F),
    normal_times(1e-20F),
    normal_times(1e-38F),
    normal_times(1e-44F),
    normal_times(1e15F),
    normal_times(1e25F),
    normal_times(1e38F),
    each([](SplitMix& random) { return static_cast<float>(random.uniform() - 0.5); }),
    each([](SplitMix& random) { return static_cast<float>(random.uniform()); }),
    each([](SplitMix& random) { return static_cast<float>(random.next() % 16) - 8; }),
    each([](SplitMix& random) { return static_cast<float>(random.next() % 2); }),
    each([](SplitMix& random) { return 1e6F + 0.0625F * static_cast<float>(random.next() % 3); }),
    each([](SplitMix& random) { return 1 + 1e-6F * normal(random); }),
    each([](SplitMix& random) { return std::exp(8 * normal(random)); }),
    each([](SplitMix&) { return 0.0F; }),
    each([](SplitMix&) { return -0.0F; }),
    each([](SplitMix& random) { return random.next() % 2 == 0 ? 0.0F : -0.0F; }),
    each([](SplitMix&) { return -0.7F; }),
    each([](SplitMix&) { return 1e30F; }),
    each([](SplitMix&) { return nan; }),
    each([](SplitMix&) { return infinity; }),
    each([](SplitMix& random) { return random.next() % 2 == 0 ? infinity : -infinity; }),
    with_one(nan),
    with_one(-nan),
    with_one(infinity),
    with_one(-infinity),
    with_one(1e6F),
    with_one(std::numeric_limits<float>::max()),
};

// Each kind of group among groups of the first kind, and all kinds mixed.
std::vector<float> all_groups() {
  SplitMix random(1);
  std::vector<float> values;
  const auto add = [&](const MakeGroup& make) {
    const Group group = make(random);
    values.insert(values.end(), group.begin(), group.end());
  };
  for (const MakeGroup& make : groups)
    for (int i = 0; i < 64; ++i) add(i % 16 == 5 || i >= 48 ? make : groups[0]);
  for (int i = 0; i < 4096; ++i) add(groups[random.next() % groups.size()]);
  return values;
}

class QuantiseInLanes : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Targets, QuantiseInLanes, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

TEST_P(QuantiseInLanes, GivesTheBitsOfOneByOne) {
  const std::vector<float> values = all_groups();
  const std::int64_t count = std::ssize(values);
  for (const DType dtype : {DType::i4, DType::i8}) {
    Quantised one_by_one({count}, dtype), in_lanes({count}, dtype);
    quantise_one_by_one(values, 0, GroupWriter(one_by_one.view(), 0));
    quantise_groups(values, 0, GroupWriter(in_lanes.view(), 0));
    const QuantisedView expected = one_by_one.view(), found = in_lanes.view();
    const std::size_t group_bytes = group_size * static_cast<std::size_t>(bits(dtype)) / 8;
    for (std::size_t group = 0; group < values.size() / group_size; ++group) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ", group " << group << " from " << values[group * group_size]);
      ASSERT_EQ(found.scales[group], expected.scales[group]);
      if (dtype == DType::i4) {
        ASSERT_EQ(found.mins[group], expected.mins[group]);
      }
      for (std::size_t i = group * group_bytes; i < (group + 1) * group_bytes; ++i)
        ASSERT_EQ(found.weight[i], expected.weight[i]) << "byte " << i % group_bytes;
    }
  }
}

// Groups that fill no vector, and where they begin.
TEST_P(QuantiseInLanes, TakesAnyNumberOfGroups) {
  SplitMix random(2);
  std::vector<float> values(40 * group_size);
  for (float& value : values) value = normal(random);
  for (const std::int64_t count : {0, 1, 3, 15, 16, 17, 33}) {
    Quantised one_by_one({40 * 32}, DType::i4), in_lanes({40 * 32}, DType::i4);
    const auto some = std::span(values).first(static_cast<std::size_t>(count) * group_size);
    quantise_one_by_one(some, 5, GroupWriter(one_by_one.view(), 2));
    quantise_groups(some, 5, GroupWriter(in_lanes.view(), 2));
    const auto same = [](const HostTensor& a, const HostTensor& b) {
      return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin());
    };
    EXPECT_TRUE(same(one_by_one.weight, in_lanes.weight)) << count;
    EXPECT_TRUE(same(one_by_one.scales, in_lanes.scales)) << count;
    EXPECT_TRUE(same(*one_by_one.mins, *in_lanes.mins)) << count;
  }
}

}  // namespace
}  // namespace jerboa::models
