#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>

#include <jerboa/base/float16.h>

#include "cpu/ieee.h"

// Every element-wise op on special values, against the C library in f64 rounded to f32: the reference and the CPU
// engine on each instruction set, fused and not, in the body of a loop over vectors and in its tail.
namespace jerboa::test::special_values_test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();

const std::vector<double>& special_values() {
  static const std::vector<double> values = [] {
    std::vector<double> list{0.0, nan, 2.5};
    for (const float magnitude : {0.0F, 1.0F, 0.5F, 1.5F, 3.7F, 1e-6F, 1e-30F, 20.0F, 89.0F, 105.0F, 200.0F, 1e5F, 1e8F,
                                  1e30F, largest, infinity}) {
      list.push_back(static_cast<double>(magnitude));
      list.push_back(-static_cast<double>(magnitude));
    }
    return list;
  }();
  return values;
}

/// The expected result of an op and its tolerance, relative and absolute; exact results include the sign of zero, and
/// so does what functions of one operand make of zero.
struct Expectation {
  std::function<double(double, double)> function;
  double relative = 0, absolute = 0;
  Attrs attrs = NoAttrs{};
  bool is_binary = false;
  bool is_integer = false;
  bool any_sign_of_zero = false;
  bool is_exact() const { return relative == 0 && absolute == 0; }
};

constexpr double few_units = 1e-6;   // in the last place of f32
constexpr double any_zero = 1e-300;  // exact, except for the sign of zero

using Function = std::function<double(double, double)>;
Function of_one(double (*f)(double)) {
  return [f](double x, double) { return f(x); };
}
Expectation one(Function f, double relative = 0, double absolute = 0, Attrs attrs = NoAttrs{}) {
  return {std::move(f), relative, absolute, std::move(attrs), false};
}
Expectation with_any_sign_of_zero(Expectation expected) {
  expected.any_sign_of_zero = true;
  return expected;
}
Expectation integer(Function f, DType dtype) { return {std::move(f), 0, any_zero, CastAttrs{dtype}, false, true}; }
Expectation two(Function f, double relative = 0, Attrs attrs = NoAttrs{}) {
  return {std::move(f), relative, 0, std::move(attrs), true};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
// The limit at minus infinity, where the formulas give infinity times 0.
double silu(double x) { return x == -infinity ? 0 : x * sigmoid(x); }
double gelu(double x) { return x == -infinity ? 0 : x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double gelu_tanh(double x) {
  return x == -infinity ? 0 : x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double relu(double x) { return x < 0 ? 0 : x; }
double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? nan : std::fmax(a, b); }
double smaller(double a, double b) { return std::isnan(a) || std::isnan(b) ? nan : std::fmin(a, b); }
double truncated(double x, double low, double high) {
  return std::isnan(x) ? 0 : std::fmin(std::fmax(std::trunc(x), low), high);
}
double in_f16(double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); }
double in_bf16(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

// An op may have several. Ops on only integers and booleans are listed with none.
const std::multimap<Op, Expectation>& expectations() {
  static const std::multimap<Op, Expectation> table = [] {
    std::multimap<Op, Expectation> all{
        {Op::neg, one([](double x, double) { return -x; })},
        {Op::abs, one(of_one(std::fabs))},
        {Op::sqrt, one(of_one(std::sqrt))},
        {Op::rsqrt, one([](double x, double) { return 1 / std::sqrt(x); }, 2e-7)},
        {Op::log, one(of_one(std::log), few_units)},
        {Op::exp, one(of_one(std::exp), few_units)},
        {Op::expm1, with_any_sign_of_zero(one(of_one(std::expm1), few_units))},
        {Op::sin, with_any_sign_of_zero(one(of_one(std::sin), 0, 3e-7))},
        {Op::cos, one(of_one(std::cos), 0, 3e-7)},
        {Op::tanh, one(of_one(std::tanh), few_units)},
        {Op::sigmoid, one(of_one(sigmoid), few_units)},
        {Op::erf, one(of_one(std::erf), few_units)},
        {Op::relu, one(of_one(relu), 0, any_zero)},
        {Op::silu, one(of_one(silu), few_units, 1e-35)},  // its second factor is subnormal there
        {Op::gelu, with_any_sign_of_zero(one(of_one(gelu), few_units, 1e-6, GeluAttrs{GeluForm::none}))},
        {Op::gelu, with_any_sign_of_zero(one(of_one(gelu_tanh), few_units, 1e-6, GeluAttrs{GeluForm::tanh}))},
        {Op::softplus, one(of_one(softplus), few_units)},
        {Op::floor, one(of_one(std::floor), 0, any_zero)},
        {Op::round, one(of_one(std::nearbyint), 0, any_zero)},
        {Op::clamp, one([](double x, double) { return smaller(larger(x, -2), 3); }, 0, any_zero, ClampAttrs{-2, 3})},
        {Op::clamp, one([](double x, double) { return larger(x, 0.25); }, 0, any_zero, ClampAttrs{0.25, infinity})},
        {Op::cast, one([](double x, double) { return x; }, 0, 0, CastAttrs{DType::f32})},
        {Op::cast, one([](double x, double) { return in_f16(x); }, 0, 0, CastAttrs{DType::f16})},
        {Op::cast, one([](double x, double) { return in_bf16(x); }, 0, 0, CastAttrs{DType::bf16})},
        {Op::cast, one([](double x, double) { return x != 0 ? 1.0 : 0.0; }, 0, 0, CastAttrs{DType::boolean})},
        {Op::cast, integer([](double x, double) { return truncated(x, -2147483648.0, 2147483647.0); }, DType::i32)},
        {Op::cast, integer([](double x, double) { return truncated(x, 0, 4294967295.0); }, DType::u32)},
        {Op::add, two([](double a, double b) { return a + b; })},
        {Op::sub, two([](double a, double b) { return a - b; })},
        {Op::mul, two([](double a, double b) { return a * b; })},
        {Op::div, two([](double a, double b) { return a / b; })},
        {Op::pow, two([](double a, double b) { return std::pow(a, b); }, few_units, PowAttrs{})},
        {Op::maximum, two(larger, any_zero)},
        {Op::minimum, two(smaller, any_zero)},
        {Op::mod, two([](double a, double b) { return std::fmod(a, b); })},
        {Op::equal, two([](double a, double b) { return a == b ? 1.0 : 0.0; })},
        {Op::not_equal, two([](double a, double b) { return a != b ? 1.0 : 0.0; })},
        {Op::less, two([](double a, double b) { return a < b ? 1.0 : 0.0; })},
        {Op::less_equal, two([](double a, double b) { return a <= b ? 1.0 : 0.0; })},
        {Op::greater, two([](double a, double b) { return a > b ? 1.0 : 0.0; })},
        {Op::greater_equal, two([](double a, double b) { return a >= b ? 1.0 : 0.0; })},
    };
    for (const double exponent : {0.0, 1.0, 2.0, 3.0, 7.0, -1.0, -2.0, -3.0, 0.5, -0.5, 1.7})
      all.emplace(Op::pow, one([exponent](double x, double) { return std::pow(x, exponent); }, few_units, 0,
                               PowAttrs{exponent}));
    for (const Op op : {Op::logical_not, Op::bit_not, Op::logical_and, Op::logical_or, Op::bit_and, Op::bit_or,
                        Op::bit_xor, Op::shift_left, Op::shift_right})
      all.emplace(op, Expectation{});
    all.emplace(Op::where, Expectation{});  // has a separate test
    return all;
  }();
  return table;
}

// Results that are subnormal in f32 need not be right.
constexpr double smallest_normal = std::numeric_limits<float>::min();

void expect_as_wanted(const Expectation& expected, const std::vector<double>& a, const std::vector<double>& b,
                      const std::vector<double>& computed, const std::string& what) {
  ASSERT_EQ(computed.size(), a.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double result = expected.function(a[i], b[i]);
    const double wanted = expected.is_integer ? result : static_cast<double>(static_cast<float>(result));
    // The limits at infinity are exact.
    const bool is_limit = !expected.is_binary && std::isinf(a[i]);
    const bool close = agrees(computed[i], wanted, is_limit ? 0 : expected.relative,
                              is_limit ? 0 : expected.absolute + smallest_normal);
    const bool keeps_zero = !expected.is_binary && expected.absolute != any_zero && !expected.any_sign_of_zero;
    const bool sign_matters = expected.is_exact() || (keeps_zero && a[i] == 0);
    const bool zero_is_signed =
        !sign_matters || wanted != 0 || computed[i] != 0 || std::signbit(wanted) == std::signbit(computed[i]);
    EXPECT_TRUE(close && zero_is_signed) << fmt::format("{} of {} and {} is {} instead of {}, element {}", what, a[i],
                                                        b[i], computed[i], wanted, i);
  }
}

// The op alone, or between others in one kernel: `always` is true everywhere, so that they change nothing.
Sample sample_of_op(Op op, const Attrs& attrs, const std::vector<Value>& operands, bool among_others) {
  return sample_with(operands, [&](const std::vector<Tensor>& x) {
    std::vector<Operand> in;
    if (!among_others) {
      for (const Tensor& tensor : x) in.emplace_back(tensor);
      if (op == Op::pow && in.size() == 1) in.emplace_back();
      return apply(op, in, attrs).front();
    }
    const Tensor always = arange(x[0].dim(-1)) >= 0;
    for (const Tensor& tensor : x) in.emplace_back(where(always, tensor, 1));
    if (op == Op::pow && in.size() == 1) in.emplace_back();
    const Tensor result = apply(op, in, attrs).front();
    return result.dtype() == DType::boolean ? logical_or(result, logical_not(always)) : where(always, result, 1);
  });
}

std::vector<double> cycled(std::int64_t count, std::int64_t first) {
  const auto& values = special_values();
  std::vector<double> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(values[static_cast<std::size_t>(first + i) % values.size()]);
  return result;
}

void check_one(Op op, const Expectation& expected, bool among_others) {
  // A size with only a tail, one with full vectors and a tail, and several tiles, with each value in each lane.
  const auto values = static_cast<std::int64_t>(special_values().size());
  struct Run {
    std::int64_t count, step;
  };
  for (const Run& run : {Run{5, 5}, Run{67, 67}, Run{1057, values}})
    for (std::int64_t first = 0; first < values; first += run.step) {
      const std::vector<double> x = cycled(run.count, first);
      const Sample sample = sample_of_op(op, expected.attrs, {floats_of({run.count}, x)}, among_others);
      for_each_engine(sample, [&](const std::vector<double>& computed, const std::string& engine) {
        expect_as_wanted(expected, x, x, computed, fmt::format("{} of {}, {}", name(op), run.count, engine));
      });
    }
}

void check_two(Op op, const Expectation& expected, bool among_others) {
  const auto& values = special_values();
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<double> a, b;
  for (const double first : values)
    for (const double second : values) {
      a.push_back(first);
      b.push_back(second);
    }
  // Both per element, one of them per row, and one of them uniform.
  const std::vector<std::vector<Value>> forms{{floats_of({count * count}, a), floats_of({count * count}, b)},
                                              {floats_of({count, 1}, values), floats_of({count}, values)}};
  for (const auto& operands : forms)
    for_each_engine(sample_of_op(op, expected.attrs, operands, among_others),
                    [&](const std::vector<double>& computed, const std::string& engine) {
                      expect_as_wanted(expected, a, b, computed, fmt::format("{}, {}", name(op), engine));
                    });
  for_each_engine(sample_of_op(op, expected.attrs, {forms[1][1], forms[1][0]}, among_others),
                  [&](const std::vector<double>& computed, const std::string& engine) {
                    expect_as_wanted(expected, b, a, computed, fmt::format("{} of a row, {}", name(op), engine));
                  });
}

// An op in which each element depends only on the operands' elements at the same position.
bool is_element_wise(const OpInfo& row) {
  const bool other = has(row.op, Trait::Moves | Trait::AddsAxis | Trait::LooksUp | Trait::Computed);
  return row.lowering == Lowering::Loop && !other && row.op != Op::arange;
}

std::vector<Op> element_wise_ops() {
  std::vector<Op> list;
  for (const OpInfo& row : op_table())
    if (is_element_wise(row)) list.push_back(row.op);
  return list;
}

class SpecialValues : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, SpecialValues, ::testing::ValuesIn(element_wise_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(SpecialValues, AreThoseOfTheStandard) {
  const auto [begin, end] = expectations().equal_range(GetParam());
  ASSERT_NE(begin, end) << "nothing is said about " << name(GetParam());
  for (auto row = begin; row != end; ++row) {
    if (!row->second.function) continue;
    for (const bool among_others : {false, true})
      (row->second.is_binary ? check_two : check_one)(GetParam(), row->second, among_others);
  }
}

TEST(SpecialValue, IsWhatWhereSelects) {
  const std::vector<double> a = cycled(67, 0), b = cycled(67, 9);
  std::vector<double> flags(67), wanted;
  for (std::size_t i = 0; i < 67; ++i) {
    flags[i] = i % 3 == 0 ? 1 : 0;
    wanted.push_back(flags[i] != 0 ? a[i] : b[i]);
  }
  const Sample sample = sample_with({{DType::boolean, {67}, flags}, floats_of({67}, a), floats_of({67}, b)},
                                    [](const std::vector<Tensor>& x) { return where(x[0], x[1], x[2]); });
  expect_everywhere(sample, wanted, 0, 0);
}

// A product fused into a sum is computed with one rounding; NaN in any operand still propagates.
TEST(SpecialValue, PassesThroughASumOfProducts) {
  for (int nan_at = 0; nan_at < 3; ++nan_at)
    for (int form = 0; form < 3; ++form) {
      std::vector<Value> operands;
      for (int i = 0; i < 3; ++i) {
        std::vector<double> x(37, 1.5);
        if (i == nan_at) x[30] = nan;
        operands.push_back(floats_of({37}, x));
      }
      const double plain[] = {1.5 * 1.5 + 1.5, 1.5 * 1.5 - 1.5, 1.5 - 1.5 * 1.5};
      std::vector<double> wanted(37, plain[form]);
      wanted[30] = nan;
      const Sample sample = sample_with(operands, [form](const std::vector<Tensor>& x) {
        return form == 0 ? x[0] * x[1] + x[2] : form == 1 ? x[0] * x[1] - x[2] : x[2] - x[0] * x[1];
      });
      expect_everywhere(sample, wanted, 0, 0);
    }
}

TEST(Angles, AreReducedWithoutLosingDigits) {
  std::vector<double> x;
  for (int i = 0; i < 20000; ++i) x.push_back(static_cast<float>(-1e5 + 10.0 * i + 1e-3 * (i % 997)));
  for (const double multiple : {1.0, 2.0, 5.0, 1000.0, 12345.0, 31830.0})
    x.push_back(static_cast<float>(multiple * M_PI / 2));
  const std::vector<double> beyond{1.1e5, -3e5, 1e6, 1e7, -1e8, 1e20, 1e30, largest};
  x.insert(x.end(), beyond.begin(), beyond.end());
  for (double& angle : x) angle = static_cast<float>(angle);
  for (const bool cosine : {false, true}) {
    std::vector<double> wanted;
    for (const double angle : x) wanted.push_back(cosine ? std::cos(angle) : std::sin(angle));
    const Sample sample = sample_with({floats_of({static_cast<std::int64_t>(x.size())}, x)},
                                      [&](const std::vector<Tensor>& in) { return cosine ? cos(in[0]) : sin(in[0]); });
    expect_everywhere(sample, wanted, 0, 3e-7);
  }
}

}  // namespace
}  // namespace jerboa::test::special_values_test
