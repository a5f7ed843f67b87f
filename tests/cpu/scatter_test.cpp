#include "backend/cpu/scatter.h"

#include <cmath>
#include <limits>

#include "backend/cpu/packed_rows.h"
#include "oracle.h"

namespace jerboa::cpu {
namespace {

using test::poison;

struct EmbeddingCase {
  std::int64_t count, rows, width;
  int low, high;  // of the ids
};

TEST(EmbeddingGrad, AgreesWithTheReference) {
  for (const EmbeddingCase& c : std::vector<EmbeddingCase>{{1, 1, 1, 0, 0},
                                                           {50, 10, 7, 0, 9},
                                                           {50, 10, 7, -3, 14},
                                                           {500, 1000, 33, 0, 999},
                                                           {1000, 256, 200, 60, 65},
                                                           {0, 5, 4, 0, 4},
                                                           {5, 5, 0, 0, 4},
                                                           {3, 0, 4, 0, 4}}) {
    SCOPED_TRACE(testing::Message() << c.count << " of " << c.rows << ", width " << c.width);
    const auto ids = test::random_ints(c.count, 1, c.low, c.high);
    const auto dy = test::normal_floats(c.count * c.width, 2);
    const auto expected = test::reference_of(
        Op::embedding_grad,
        {test::value_of(DType::i32, {c.count}, ids), test::value_of(DType::f32, {c.count, c.width}, dy)},
        EmbeddingGradAttrs{c.rows});
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<float> out(static_cast<std::size_t>(c.rows * c.width), poison);
      run_embedding_grad(ids.data(), dy.data(), c.count, c.rows, c.width, out.data(), pool);
      if (threads == 1)
        first = out;
      else
        ASSERT_EQ(out, first);
    }
    test::expect_close(first, expected[0].data, "out");
  }
}

struct ScatterCase {
  std::int64_t outer, size, count, inner;
};

template <class T>
void check_scatter(const ScatterCase& c, DType dtype, const std::vector<T>& x, const std::vector<T>& updates) {
  const auto indices =
      test::random_ints(c.outer * c.count * c.inner, 3, -1, static_cast<int>(c.size));  // some out of range
  const Sizes x_shape{c.outer, c.size, c.inner}, update_shape{c.outer, c.count, c.inner};
  const std::vector<std::optional<Value>> operands{test::value_of(dtype, x_shape, x),
                                                   test::value_of(DType::i32, update_shape, indices),
                                                   test::value_of(dtype, update_shape, updates)};
  const auto put = test::reference_of(Op::scatter, operands, AxisAttrs{1});
  const auto added = test::reference_of(Op::scatter_add, operands, AxisAttrs{1});
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<T> out(x.size(), T(77)), sum = x;
    run_scatter(
        ScatterProblem<T>{c.outer, c.size, c.count, c.inner, x.data(), indices.data(), updates.data(), out.data()},
        pool);
    test::expect_close(out, put[0].data, "scatter", 0, 0);
    // In place
    run_scatter_add(
        ScatterProblem<T>{c.outer, c.size, c.count, c.inner, sum.data(), indices.data(), updates.data(), sum.data()},
        pool);
    test::expect_close(sum, added[0].data, "scatter_add");
  }
}

TEST(Scatter, AgreesWithTheReference) {
  for (const ScatterCase& c : std::vector<ScatterCase>{{1, 1, 1, 1},
                                                       {1, 100, 300, 1},
                                                       {3, 7, 5, 11},
                                                       {2, 4, 9, 600},
                                                       {40, 3, 2, 1},
                                                       {2, 5, 0, 3},
                                                       {0, 5, 2, 3},
                                                       {2, 0, 2, 3}}) {
    SCOPED_TRACE(testing::Message() << c.outer << ", " << c.size << " < " << c.count << ", " << c.inner);
    const std::int64_t x = c.outer * c.size * c.inner, updates = c.outer * c.count * c.inner;
    check_scatter(c, DType::f32, test::normal_floats(x, 1), test::normal_floats(updates, 2));
    check_scatter(c, DType::i32, test::random_ints(x, 1, -2000000000, 2000000000),
                  test::random_ints(updates, 2, -2000000000, 2000000000));
  }
}

struct CacheCase {
  std::int64_t batch, heads, capacity, time, width;
  std::vector<std::int32_t> positions;
  bool ring;
};

TEST(CacheAppend, AgreesWithTheReference) {
  for (const CacheCase& c : std::vector<CacheCase>{{1, 1, 1, 1, 1, {0}, false},
                                                   {2, 3, 8, 2, 5, {0, 1, 6, 7}, false},
                                                   {2, 3, 8, 2, 5, {-1, 1, 7, 8}, false},
                                                   {2, 3, 8, 2, 5, {-1, 30, 7, 8}, true},
                                                   {1, 2, 3, 5, 4, {0, 1, 2, 3, 4}, true},
                                                   {1, 2, 4, 3, 4, {2, 2, 2}, false},
                                                   {1, 2, 4, 0, 4, {}, false},
                                                   {1, 2, 0, 1, 4, {0}, true}}) {
    const Sizes cache_shape{c.batch, c.heads, c.capacity, c.width}, values_shape{c.batch, c.heads, c.time, c.width};
    const auto cache = test::normal_floats(test::count_of(cache_shape), 1);
    const auto values = test::normal_floats(test::count_of(values_shape), 2);
    const auto expected = test::reference_of(
        Op::cache_append,
        {test::value_of(DType::f32, cache_shape, cache), test::value_of(DType::f32, values_shape, values),
         test::value_of(DType::i32, {c.batch, c.time}, c.positions)},
        CacheAppendAttrs{c.ring});
    // The values as [batch, time, heads, width].
    std::vector<float> by_time(values.size());
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t t = 0; t < c.time; ++t)
          for (std::int64_t i = 0; i < c.width; ++i)
            by_time[((b * c.time + t) * c.heads + h) * c.width + i] =
                values[((b * c.heads + h) * c.time + t) * c.width + i];
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      CacheAppendProblem problem{c.batch, c.heads, c.capacity, c.time, c.width};
      std::vector<float> out(cache.size(), poison), in_place = cache;
      problem.cache = cache.data(), problem.out = out.data();
      problem.values = values.data(), problem.value_strides = {c.heads * c.time * c.width, c.time * c.width, c.width};
      problem.positions = c.positions.data(), problem.position_strides = {c.time, 1};
      problem.ring = c.ring;
      run_cache_append(problem, pool);
      test::expect_close(out, expected[0].data, "out", 0, 0);
      problem.cache = problem.out = in_place.data();
      problem.values = by_time.data(), problem.value_strides = {c.heads * c.time * c.width, c.width, c.heads * c.width};
      run_cache_append(problem, pool);
      test::expect_close(in_place, expected[0].data, "in place", 0, 0);
    }
  }
}

// A NaN or an infinity is not lost: its group reads as NaN. Other groups are unaffected.
TEST(PackRow, KeepsThatSomethingIsNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> features(64, 1.0F);
    features[40] = value;
    std::vector<std::uint32_t> words(packed_words(64));
    pack_row(features.data(), 64, words.data());
    EXPECT_EQ(packed_scale(words.data(), 64, 31), bf16_to_f32(f32_to_bf16(1.0F / 127)));
    EXPECT_TRUE(std::isnan(packed_scale(words.data(), 64, 32)));
    EXPECT_EQ(words[0], 0x7f7f7f7fu);
    EXPECT_EQ(words[8], 0u);
  }
}

// The largest of all floats does not overflow, and magnitudes whose scale would not be a normal number are zeros.
TEST(PackRow, HoldsEveryMagnitude) {
  const std::vector<float> features{std::numeric_limits<float>::max(), 0, -std::numeric_limits<float>::max(), 1};
  std::vector<std::uint32_t> words(packed_words(4));
  pack_row(features.data(), 4, words.data());
  EXPECT_EQ(words[0], 0x0081007fu);
  const std::vector<float> tiny(4, 0x1p-120F);
  pack_row(tiny.data(), 4, words.data());
  EXPECT_EQ(words, (std::vector<std::uint32_t>{0, 0}));
}

}  // namespace
}  // namespace jerboa::cpu
