#include "memory/vector_index.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include <jerboa/base/error.h>

namespace jerboa::test::vector_index_test {
namespace {

using memory::Neighbour;
using memory::VectorIndex;

std::vector<float> random_vector(std::mt19937& random, std::int64_t size) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = normal(random);
  return values;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

TEST(VectorIndexTest, FindsTheSameAsComparingOneByOne) {
  for (const std::int64_t dimensions : {1, 31, 32, 33, 384}) {
    std::mt19937 random(7);
    VectorIndex index(dimensions, 2);
    std::vector<std::vector<float>> rows;
    for (std::int64_t i = 0; i < 5000; ++i) {
      rows.push_back(random_vector(random, dimensions));
      index.add(1000 + i, rows.back());
    }
    const std::vector<float> query = random_vector(random, dimensions);
    const std::vector<Neighbour> found = index.nearest(query, 10);
    ASSERT_EQ(found.size(), 10u);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].score, dot(rows[static_cast<std::size_t>(found[i].id - 1000)], query), 1e-3);
      EXPECT_GE(found[i > 0 ? i - 1 : 0].score, found[i].score);
    }
    const auto better = std::count_if(rows.begin(), rows.end(),
                                      [&](const auto& row) { return dot(row, query) > found.back().score + 1e-3; });
    EXPECT_LT(better, 10);
  }
}

TEST(VectorIndexTest, DoesNotDependOnTheNumberOfThreads) {
  std::mt19937 random(3);
  VectorIndex one(100, 1), three(100, 3);
  for (std::int64_t i = 0; i < 9000; ++i) {
    const std::vector<float> row = random_vector(random, 100);
    one.add(i, row);
    three.add(i, row);
  }
  const std::vector<float> query = random_vector(random, 100);
  EXPECT_EQ(one.nearest(query, 50), three.nearest(query, 50));
}

TEST(VectorIndexTest, PutsTheFirstOfEqualsFirst) {
  VectorIndex index(2);
  for (const std::int64_t id : {5, 3, 8}) index.add(id, std::vector<float>{1, 0});
  EXPECT_EQ(index.nearest(std::vector<float>{2, 0}, 2), (std::vector<Neighbour>{{5, 2}, {3, 2}}));
  EXPECT_EQ(index.nearest(std::vector<float>{2, 0}, 100).size(), 3u);
  EXPECT_TRUE(index.nearest(std::vector<float>{2, 0}, 0).empty());
}

TEST(VectorIndexTest, RefusesOtherDimensions) {
  VectorIndex index(3);
  EXPECT_THROW(index.add(1, std::vector<float>{1, 0}), UsageError);
  EXPECT_THROW(index.nearest(std::vector<float>{1, 0}, 1), UsageError);
  EXPECT_TRUE(index.nearest(std::vector<float>{1, 0, 0}, 1).empty());
}

}  // namespace
}  // namespace jerboa::test::vector_index_test
