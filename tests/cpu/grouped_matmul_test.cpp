#include "backend/cpu/grouped_matmul.h"

#include "oracle.h"

namespace jerboa::cpu {
namespace {

using test::poison;

struct Case {
  std::int64_t rows, inner, columns;
  std::vector<std::int32_t> offsets;
};

TEST(GroupedMatmul, AgreesWithTheReference) {
  for (const Case& c : std::vector<Case>{{1, 1, 1, {0, 1}},
                                         {10, 5, 7, {0, 3, 3, 10}},
                                         {10, 5, 7, {2, 3, 6, 9}},
                                         {10, 5, 7, {0, 4, 40}},
                                         {200, 33, 70, {0, 1, 100, 180, 200}},
                                         {0, 5, 7, {0, 0, 0}},
                                         {6, 0, 4, {0, 2, 6}}}) {
    const auto groups = static_cast<std::int64_t>(c.offsets.size()) - 1;
    const auto x = test::normal_floats(c.rows * c.inner, 1), w = test::normal_floats(groups * c.inner * c.columns, 2);
    const auto dy = test::normal_floats(c.rows * c.columns, 3);
    const Value offsets = test::value_of(DType::i32, {groups + 1}, c.offsets);
    const Value x_value = test::value_of(DType::f32, {c.rows, c.inner}, x);
    for (const bool transposed : {false, true}) {
      const Sizes w_shape = transposed ? Sizes{groups, c.columns, c.inner} : Sizes{groups, c.inner, c.columns};
      const auto expected = test::reference_of(
          Op::matmul_grouped, {x_value, test::value_of(DType::f32, w_shape, w), offsets}, GroupedAttrs{transposed});
      const auto dw_expected =
          test::reference_of(Op::matmul_grouped_weight_grad,
                             {x_value, test::value_of(DType::f32, {c.rows, c.columns}, dy), offsets}, NoAttrs{});
      std::vector<float> first, first_dw;
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        const GroupedMatmul grouped{groups, c.rows, c.inner, c.columns, c.offsets.data()};
        std::vector<float> out(dy.size(), poison), dw(w.size(), poison);
        run_matmul_grouped(grouped, x.data(), w.data(), transposed, out.data(), pool);
        run_matmul_grouped_weight_grad(grouped, x.data(), dy.data(), dw.data(), pool);
        if (threads == 1) {
          first = out;
          first_dw = dw;
          continue;
        }
        ASSERT_EQ(out, first);
        ASSERT_EQ(dw, first_dw);
      }
      test::expect_close(first, expected[0].data, "out");
      test::expect_close(first_dw, dw_expected[0].data, "dw");
    }
  }
}

}  // namespace
}  // namespace jerboa::cpu
