#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>

#include "support/product_prologues.h"
#include "verify/compare.h"

// Products that compute their operands as they read them, in the forms for software drivers and for GPUs.
namespace jerboa::test::prologue_test {
namespace {

Device device(bool software) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.target->software = software;
  return Device::webgpu(options);
}

TEST(ProductPrologue, EqualsTheReference) {
  for (const bool software : {true, false}) {
    const Device this_device = device(software);
    for (const ProductCase& product : product_cases())
      for (const DType second : {DType::f32, DType::f16}) {
        SCOPED_TRACE(describe(product));
        const Sample sample = product_of_prologues(product, second);
        expect_reference(sample, outputs_on(this_device, sample), software ? "for the CPU" : "for GPUs");
      }
  }
}

}  // namespace
}  // namespace jerboa::test::prologue_test
