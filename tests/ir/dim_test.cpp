#include <gtest/gtest.h>
#include <random>

#include <jerboa/base/error.h>
#include <jerboa/ir/dim.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

const Dim T = Dim::symbol("T", 16), B = Dim::symbol("B", 4), L = Dim::symbol("L", 100);
const std::map<std::string, std::int64_t> bounds{{"T", 16}, {"B", 4}, {"L", 100}};

TEST(Dim, EqualsWhereThePolynomialsDo) {
  EXPECT_EQ(T + Dim(1), Dim(1) + T);
  EXPECT_EQ(B * T, T * B);
  EXPECT_EQ((T + Dim(2)) * (T - Dim(2)), T * T - Dim(4));
  EXPECT_EQ(T - T, Dim(0));
  EXPECT_TRUE((T - T).is_constant());
  EXPECT_FALSE(T == B);
  EXPECT_FALSE(T == Dim(16));
  EXPECT_FALSE(T + Dim(1) == T);
}

TEST(Dim, PrintsHigherPowersFirst) {
  EXPECT_EQ((Dim(3) + T).str(), "T+3");
  EXPECT_EQ((T - Dim(1)).str(), "T-1");
  EXPECT_EQ((Dim(4) * T * B - L).str(), "4*B*T-L");
  EXPECT_EQ((Dim(0) - T).str(), "-T");
  EXPECT_EQ((T * T + T).str(), "T*T+T");
  EXPECT_EQ(Dim(-3).str(), "-3");
  EXPECT_EQ(to_string(Shape{8, T, B * T}), "[8, T, B*T]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

TEST(Dim, DividesOnlyWithoutRemainder) {
  EXPECT_EQ(divide_exactly(B * T, T), B);
  EXPECT_EQ(divide_exactly(Dim(6) * T, Dim(3)), Dim(2) * T);
  EXPECT_EQ(divide_exactly(B * T + B, B), T + Dim(1));
  EXPECT_EQ(divide_exactly(T * T - Dim(1), T - Dim(1)), T + Dim(1));
  EXPECT_EQ(divide_exactly(Dim(0), T), Dim(0));
  EXPECT_EQ(divide_exactly(T, Dim(2)), std::nullopt);
  EXPECT_EQ(divide_exactly(T + Dim(1), T), std::nullopt);
  EXPECT_EQ(divide_exactly(Dim(7), Dim(2)), std::nullopt);
  EXPECT_EQ(divide_exactly(T, Dim(0)), std::nullopt);
}

TEST(Dim, FloorDivisionTakesOutMultiples) {
  EXPECT_EQ(floor_divide(Dim(7), 2), Dim(3));
  EXPECT_EQ(floor_divide(Dim(-7), 2), Dim(-4));
  EXPECT_EQ(floor_divide(Dim(4) * T, 2), Dim(2) * T);
  EXPECT_EQ(floor_divide(Dim(2) * T + Dim(5), 2), T + Dim(2));
  EXPECT_EQ(floor_divide(T + Dim(5), 2).str(), "((T+1)//2)+2");
  EXPECT_EQ(floor_divide(T + Dim(4), 2) - floor_divide(T, 2), Dim(2));
  EXPECT_EQ(floor_divide(T - Dim(1), 2) + Dim(1), floor_divide(T + Dim(1), 2));
}

TEST(Dim, KnowsItsBounds) {
  EXPECT_EQ(T.lower_bound(), 1);
  EXPECT_EQ(T.upper_bound(), 16);
  EXPECT_EQ((B * T + Dim(3)).lower_bound(), 4);
  EXPECT_EQ((B * T + Dim(3)).upper_bound(), 67);
  EXPECT_EQ((L - T).lower_bound(), -15);
  EXPECT_EQ((L - T).upper_bound(), 99);
  EXPECT_EQ(floor_divide(T, 4).lower_bound(), 0);
  EXPECT_EQ(floor_divide(T, 4).upper_bound(), 4);
  EXPECT_EQ((Dim(9) - floor_divide(T, 4)).lower_bound(), 5);
  EXPECT_EQ(Dim(7).upper_bound(), 7);
}

TEST(Dim, EvaluatesUnderValuesInBounds) {
  EXPECT_EQ((B * T - Dim(1)).evaluate({{"T", 5}, {"B", 2}}), 9);
  EXPECT_EQ(floor_divide(T + Dim(1), 2).evaluate({{"T", 5}}), 3);
  EXPECT_EQ(floor_divide(T - Dim(16), 3).evaluate({{"T", 5}}), -4);
  EXPECT_EQ(Dim(7).evaluate({}), 7);
  EXPECT_EQ(evaluate(Shape{T, 3}, {{"T", 2}}), (Sizes{2, 3}));
  test::expect_error<ShapeError>([] { T.evaluate({}); }, "symbol T has no value");
  test::expect_error<ShapeError>([] { T.evaluate({{"T", 17}}); }, "symbol T = 17 is outside 1 to 16");
  test::expect_error<ShapeError>([] { T.evaluate({{"T", 0}}); }, "symbol T = 0 is outside 1 to 16");
}

TEST(Dim, NeedsANumberWhereOneIsAskedFor) {
  EXPECT_EQ(Dim(3).value(), 3);
  test::expect_error<ShapeError>([] { (T + Dim(1)).value(); }, "the size T+1 is symbolic where a number is needed");
}

TEST(Dim, RefusesWrongSymbols) {
  test::expect_error<ShapeError>([] { Dim::symbol("T", 0); }, "upper bound must be at least 1, not 0");
  for (const char* name : {"", "1T", "T*B", "a b"})
    test::expect_error<ShapeError>([&] { Dim::symbol(name, 4); }, "a name is a letter");
}

TEST(Dim, RefusesSizesThatNoMachineHas) {
  const Dim huge(std::int64_t{1} << 40);
  test::expect_error<ShapeError>([&] { huge* huge; }, "too large");
  test::expect_error<ShapeError>([&] { huge* T* huge; }, "too large");
  test::expect_error<ShapeError>([&] { Dim(std::int64_t{1} << 62) + Dim(std::int64_t{1} << 62); }, "too large");
  test::expect_error<ShapeError>([&] { (huge * Dim::symbol("H", std::int64_t{1} << 40)).upper_bound(); }, "too large");
}

TEST(Dim, ParsesItsOwnOutput) {
  std::mt19937 engine(7);
  const auto random_dim = [&](auto&& self, int depth) -> Dim {
    switch (depth > 3 ? engine() % 2 : engine() % 6) {
      case 0: return {static_cast<std::int64_t>(engine() % 20) - 5};
      case 1: return engine() % 2 == 0 ? T : B;
      case 2: return self(self, depth + 1) + self(self, depth + 1);
      case 3: return self(self, depth + 1) - self(self, depth + 1);
      case 4: return self(self, depth + 1) * self(self, depth + 1);
      default: return floor_divide(self(self, depth + 1), static_cast<std::int64_t>(engine() % 5) + 1);
    }
  };
  for (int i = 0; i < 500; ++i) {
    const Dim dim = random_dim(random_dim, 0);
    const auto parsed = Dim::parse(dim.str(), bounds);
    ASSERT_TRUE(parsed) << dim.str();
    EXPECT_EQ(*parsed, dim) << dim.str();
    const SymbolValues values{{"T", 3}, {"B", 2}};
    EXPECT_EQ(parsed->evaluate(values), dim.evaluate(values)) << dim.str();
    EXPECT_LE(dim.lower_bound(), dim.evaluate(values)) << dim.str();
    EXPECT_GE(dim.upper_bound(), dim.evaluate(values)) << dim.str();
  }
}

TEST(Dim, DoesNotParseOtherTexts) {
  for (const char* text :
       {"", "T+", "+T", "S", "T**B", "(T", "()", "(T))", "(T//0)", "(T//2", "T//2", "T B", "T-+1", "(T/2)", "1e3",
        "0x1", "99999999999999999999", "((((((((((((((((((((1//1)//1)//1)//1)//1)//1)//1)//1)"})
    EXPECT_EQ(Dim::parse(text, bounds), std::nullopt) << text;
  test::expect_error<ShapeError>([] { Dim::parse("99999999999999999*99999999999999999", bounds); }, "too large");
}

TEST(Dim, CollectsSymbols) {
  std::map<std::string, std::int64_t> found;
  (B * floor_divide(T, 2) + Dim(1)).collect_symbols(found);
  EXPECT_EQ(found, (std::map<std::string, std::int64_t>{{"B", 4}, {"T", 16}}));
}

TEST(Sizes, AreRowMajor) {
  EXPECT_EQ(strides_of({2, 3, 4}), (Sizes{12, 4, 1}));
  EXPECT_EQ(strides_of({}), Sizes{});
  EXPECT_EQ(element_count(Sizes{2, 3, 4}), 24);
  EXPECT_EQ(element_count(Shape{B, 3}), Dim(3) * B);
}

}  // namespace
}  // namespace jerboa
