#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/half_products.h"
#include "wgsl/shared_device.h"

// Products of f16 on WebGPU against the reference in f64: multiplied in f16, in f32 from tiles of f16, and on a device
// without f16. Without an adapter the tests fail and say why.
namespace jerboa::test::matmul_test {
namespace {

enum class Products { in_f16, in_f32, without_f16 };
constexpr Products all_products[] = {Products::in_f16, Products::in_f32, Products::without_f16};

// The kernels for GPUs, whatever the driver.
Target target_of(Products products) {
  Target target = Target::webgpu_default();
  target.f16 = products != Products::without_f16;
  target.f16_arithmetic = products == Products::in_f16;
  return target;
}

const Device& device(Products products) {
  return shared_device(products, [](Products key) {
    return WebGpuOptions{.use_f16 = key != Products::without_f16, .target = target_of(key)};
  });
}

// A result is rounded to f16, which alone is 2^-11 of it. Products in f16 add some roundings of each, which is a few
// times that of results whose terms cancel no more than random ones do.
Tolerance tolerance_of(Products products) {
  return products == Products::in_f16 ? Tolerance{5e-3, 2e-2, 6e-4} : tolerance_of_halves;
}

void expect_reference_and_same_bits(const Sample& sample, Products products) {
  SCOPED_TRACE(static_cast<int>(products));
  const TensorMap computed = outputs_on(device(products), sample);
  expect_reference(sample, computed, "of f16", tolerance_of(products));
  expect_same_bits(computed, outputs_on(device(products), sample), "a second time");
}

struct Trial {
  std::string name;
  Case one;
};

std::ostream& operator<<(std::ostream& stream, const Trial& trial) { return stream << trial.name; }

const Trial in_tiles{"tiles", {{any({70, 96}), any({96, 68})}, MatmulAttrs{}}};

std::vector<Trial> trials() {
  return {
      {"batch", {{any({3, 40, 24}), any({3, 20, 24})}, MatmulAttrs{false, true}}},
      {"in_chunks", {{within(-1, 1, {12, 1028}), within(-1, 1, {1028, 20})}, MatmulAttrs{}}},
      {"vector_along_inner", {{any({2, 260}), any({24, 260})}, MatmulAttrs{false, true}}},
      {"vector_along_columns", {{any({1, 260}), any({260, 24})}, MatmulAttrs{}}},
      {"vectors", {{any({2, 264}), any({24, 264})}, MatmulAttrs{false, true}}},
      {"batch_of_vectors", {{any({3, 2, 72}), any({3, 21, 72})}, MatmulAttrs{false, true}}},
      {"odd_vector", {{any({3, 2, 131}), any({3, 21, 131})}, MatmulAttrs{false, true}}},
  };
}

// Each takes a software driver long to compile.
std::vector<Trial> slow_trials() {
  return {
      in_tiles,
      {"odd_tiles", {{any({37, 51}), any({51, 45})}, MatmulAttrs{}}},
      {"transposed", {{any({44, 36}), any({52, 44})}, MatmulAttrs{true, true}}},
      {"one_right_hand_side", {{any({3, 24, 40}), any({40, 36})}, MatmulAttrs{}}},
  };
}

std::string name_of(const ::testing::TestParamInfo<Trial>& param) { return param.param.name; }

class ProductsOfHalves : public ::testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Shapes, ProductsOfHalves, ::testing::ValuesIn(trials()), name_of);
INSTANTIATE_TEST_SUITE_P(OtherForms, ProductsOfHalves, ::testing::ValuesIn(slow_trials()), name_of);

TEST_P(ProductsOfHalves, EqualTheReferenceAndThemselves) {
  for (const Products products : {Products::in_f16, Products::in_f32})
    expect_reference_and_same_bits(product_of_halves(GetParam().one), products);
}

// The rest of what a device without f16 does is tested op by op.
TEST(ProductsWithoutF16, EqualTheReferenceAndThemselves) {
  expect_reference_and_same_bits(product_of_halves(in_tiles.one), Products::without_f16);
}

// Rows of products, each 90000, of which the first half cancels the second: in f16 already the first is too large.
TEST(RangeOfHalves, IsThatOfF32WhereProductsAreOrGiveF32) {
  const auto value = [](bool wide, bool vector, Products products) {
    const std::int64_t rows = vector ? 1 : 8;
    Session session(device(products));
    session.add_entry("run", trace([&] {
                        const Tensor a = tensor_input("a", {rows, 16}, DType::f16);
                        const Tensor y = matmul(a, tensor_input("b", {8, 16}, DType::f16), {.transpose_b = true});
                        output("y", wide ? cast(y, DType::f32) : y);
                      }));
    HostTensor a(DType::f16, {rows, 16}), b(DType::f16, {8, 16});
    for (std::int64_t i = 0; i < a.size(); ++i) a.set_number(i, i % 16 < 8 ? 300 : -300);
    for (std::int64_t i = 0; i < b.size(); ++i) b.set_number(i, i % 16 == 0 ? 301 : 300);
    return session.run("run", {{"a", a}, {"b", b}}).get("y").number(3);
  };
  for (const bool vector : {false, true}) {
    for (const Products products : all_products) EXPECT_EQ(value(true, vector, products), 300);
    EXPECT_EQ(value(false, vector, Products::in_f32), 300);
    // A few rows are bound by the memory of their weights, so multiplying in f16 would gain nothing. A driver without
    // f16, as SwiftShader is, multiplies in f32.
    EXPECT_EQ(std::isfinite(value(false, vector, Products::in_f16)),
              vector || !webgpu_target(device(Products::in_f16).backend()).f16);
  }
}

std::string shaders(const Target& target, DType dtype, std::int64_t rows, bool wide = false) {
  Program program =
      lower(trace([&] {
              const Tensor a = tensor_input("a", {rows, 64}, dtype), b = tensor_input("b", {64, 64}, dtype);
              const Tensor y = matmul(a, b, {.transpose_b = true});
              output("y", wide ? cast(y, DType::f32) : y);
            }),
            target);
  emit_wgsl(program, target);
  EXPECT_EQ(program.gpu.uses_f16, target.f16 && dtype == DType::f16);
  return print_gpu(program);
}

void expect_text(const std::string& text, const std::vector<std::string>& there,
                 const std::vector<std::string>& absent) {
  for (const std::string& part : there) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  for (const std::string& part : absent) EXPECT_EQ(text.find(part), std::string::npos) << part << " is in\n" << text;
}

TEST(ShadersOfHalves, MultiplyInF16WhereTheyMay) {
  const std::string tiles = "tile_a: array<vec4<f16>, ", in_f16 = "+= vec4f(fma(vec4<f16>(", in_f32 = "fma(vec4f(";
  expect_text(shaders(target_of(Products::in_f16), DType::f16, 64), {"enable f16;", tiles, in_f16}, {in_f32});
  expect_text(shaders(target_of(Products::in_f32), DType::f16, 64), {"enable f16;", tiles, in_f32}, {in_f16});
  expect_text(shaders(target_of(Products::in_f16), DType::f16, 64, true), {"enable f16;", tiles, in_f32}, {in_f16});
  expect_text(shaders(target_of(Products::without_f16), DType::f16, 64), {"unpack2x16float", in_f32},
              {"enable f16;", "<f16>"});
  expect_text(shaders(target_of(Products::in_f16), DType::f32, 64), {in_f32}, {"f16"});
  expect_text(shaders(target_of(Products::in_f16), DType::bf16, 64), {in_f32}, {"f16;", "<f16>"});
  for (const Products products : all_products)
    expect_text(shaders(target_of(products), DType::f16, 1), {"array<vec4u>", "unpack2x16float"}, {"dot(vec4<f16>"});
}

// Half the memory leaves room for tiles of full depth.
TEST(ShadersOfHalves, TakeHalfTheWorkgroupMemory) {
  Target target = target_of(Products::in_f16);
  target.workgroup_bytes = 12 << 10;
  const auto text = [&](DType dtype) {
    Program program = lower(trace([&] {
                              const Tensor a = tensor_input("a", {2048, 64}, dtype);
                              output("y", matmul(a, a, {.transpose_b = true}));
                            }),
                            target);
    emit_wgsl(program, target);
    return print_gpu(program);
  };
  expect_text(text(DType::f16), {"tile_b: array<vec4<f16>, 512>"}, {});
  expect_text(text(DType::f32), {"tile_b: array<vec4f, 256>"}, {});
}

}  // namespace
}  // namespace jerboa::test::matmul_test
