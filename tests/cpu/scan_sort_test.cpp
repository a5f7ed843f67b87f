#include "backend/cpu/scan.h"
#include "backend/cpu/sort.h"
#include "oracle.h"

namespace jerboa::cpu::scan_sort_test {
namespace {

struct Case {
  std::string name;
  Lines lines;
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

Sizes shape_of(const Lines& lines) { return {lines.outer, lines.length, lines.inner}; }
std::int64_t count_of(const Lines& lines) { return lines.outer * lines.length * lines.inner; }

// Few distinct values among many, and zeros of both signs, so that there are ties.
std::vector<float> tied_floats(std::int64_t count) {
  std::vector<float> values;
  for (const std::int32_t x : test::random_ints(count, 7, -9, 9))
    values.push_back(x == 9 ? -0.0F : static_cast<float>(x) / 4);
  return values;
}

class AlongAxis : public testing::TestWithParam<Case> {};

template <class T>
void check_cumsum(const Lines& lines, DType dtype, const std::vector<T>& x) {
  for (const bool reverse : {false, true}) {
    const auto expected =
        test::reference_of(Op::cumsum, {test::value_of(dtype, shape_of(lines), x)}, CumsumAttrs{1, reverse});
    std::vector<T> first;
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<T> y(x.size(), T(77));
      run_cumsum(lines, x.data(), y.data(), reverse, pool);
      if (threads == 1)
        first = y;
      else
        ASSERT_EQ(y, first) << threads << " threads";
    }
    test::expect_close(first, expected[0].data, reverse ? "reverse" : "forward");
  }
}

TEST_P(AlongAxis, CumsumAgreesWithTheReference) {
  const Lines& lines = GetParam().lines;
  check_cumsum(lines, DType::f32, test::normal_floats(count_of(lines), 1));
  check_cumsum(lines, DType::i32, test::random_ints(count_of(lines), 2, -2000000000, 2000000000));
}

template <class T>
void check_sorts(const Lines& lines, DType dtype, const std::vector<T>& x) {
  const Value value = test::value_of(dtype, shape_of(lines), x);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (const bool descending : {false, true}) {
      const auto expected = test::reference_of(Op::argsort, {value}, ArgsortAttrs{1, descending});
      std::vector<std::int32_t> order(x.size(), -7);
      run_argsort(lines, x.data(), descending, order.data(), pool);
      test::expect_close(order, expected[0].data, descending ? "descending" : "ascending", 0, 0);
    }
    for (const std::int64_t k : {std::int64_t{1}, std::int64_t{3}, lines.length}) {
      if (k > lines.length || k == 0) continue;
      const auto expected = test::reference_of(Op::top_k, {value}, TopKAttrs{static_cast<int>(k), 1});
      const auto count = static_cast<std::size_t>(lines.outer * k * lines.inner);
      std::vector<T> values(count, T(77));
      std::vector<std::int32_t> places(count, -7);
      run_top_k(lines, x.data(), k, values.data(), places.data(), pool);
      test::expect_close(values, expected[0].data, "values", 0, 0);
      test::expect_close(places, expected[1].data, "indices", 0, 0);
    }
  }
}

TEST_P(AlongAxis, SortsAgreeWithTheReference) {
  const Lines& lines = GetParam().lines;
  check_sorts(lines, DType::f32, test::normal_floats(count_of(lines), 3));
  check_sorts(lines, DType::f32, tied_floats(count_of(lines)));
  check_sorts(lines, DType::i32, test::random_ints(count_of(lines), 4, -2000000000, 2000000000));
  check_sorts(lines, DType::i32, test::random_ints(count_of(lines), 5, -3, 3));
}

INSTANTIATE_TEST_SUITE_P(Cases, AlongAxis,
                         testing::ValuesIn(std::vector<Case>{{"one", {1, 1, 1}},
                                                             {"line", {1, 1000, 1}},
                                                             {"rows", {7, 33, 1}},
                                                             {"columns", {1, 20, 150}},
                                                             {"middle", {3, 9, 65}},
                                                             {"length_one", {4, 1, 3}},
                                                             {"many", {2000, 5, 2}},
                                                             {"no_length", {2, 0, 3}},
                                                             {"no_lines", {0, 4, 3}}}),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace jerboa::cpu::scan_sort_test
