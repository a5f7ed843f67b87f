#include "backend/cpu/grouped_matmul.h"

#include "backend/cpu/matmul.h"
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

// Every group's product is that of its own matrix, with and without integers.
TEST(GroupedMatmul, OfQuantisedWeightsIsThatOfEachMatrix) {
  constexpr std::int64_t rows = 20, inner = 96, columns = 37, groups = 4;
  constexpr std::int64_t scales_per_group = columns * inner / weight_group;
  const std::vector<std::int32_t> offsets{1, 2, 2, 5, 19};
  const auto x = test::normal_floats(rows * inner, 1);
  std::vector<std::byte> values(groups * columns * inner);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i * 37 % 251 + 1);
  std::vector<float> scales(groups * scales_per_group), mins(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    scales[i] = 0.01F * static_cast<float>(1 + i % 7);
    mins[i] = 0.02F * static_cast<float>(i % 5) - 0.05F;
  }
  const auto bytes = [](const std::vector<float>& floats) { return std::as_bytes(std::span(floats)).data(); };
  for (const DType dtype : {DType::i8, DType::i4})
    for (const bool with_mins : {false, true})
      for (const bool integers : {false, true}) {
        CompactWeights weights{dtype, values.data(), bytes(scales), DType::f32, inner};
        if (with_mins) weights.mins = bytes(mins);
        ThreadPool pool(2);
        std::vector<float> out(rows * columns, poison), expected(rows * columns, 0);
        const GroupedMatmul grouped{groups, rows, inner, columns, offsets.data()};
        run_matmul_grouped(grouped, x.data(), weights, integers, out.data(), pool);
        for (std::size_t g = 0; g < groups; ++g) {
          CompactWeights one = weights;
          const auto number = static_cast<std::int64_t>(g);
          one.values += number * columns * inner * bits(dtype) / 8;
          one.scales = bytes(scales) + number * scales_per_group * 4;
          if (with_mins) one.mins = bytes(mins) + number * scales_per_group * 4;
          Matmul product;
          product.rows = offsets[g + 1] - offsets[g], product.columns = columns, product.inner = inner;
          product.a = x.data() + offsets[g] * inner, product.a_row = inner, product.a_inner = 1;
          product.weights = &one, product.integer_products = integers;
          product.c = expected.data() + offsets[g] * columns, product.c_row = columns;
          run_matmul(product, pool);
        }
        EXPECT_EQ(out, expected) << name(dtype) << (with_mins ? " with mins" : "") << (integers ? ", integers" : "");
      }
}

}  // namespace
}  // namespace jerboa::cpu
