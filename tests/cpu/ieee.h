#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ops/sample.h"

// Shared by the tests of NaN and infinity: graphs with one output, and every engine that follows IEEE 754.
namespace jerboa::test {

/// Whether two numbers are close; NaN is close to NaN, and an infinity only to itself.
bool agrees(double computed, double wanted, double relative, double absolute);

/// Values of f32.
Value floats_of(Sizes shape, const std::vector<double>& data);

/// A graph whose inputs have these values and whose only output is what `body` computes from them.
Sample sample_with(const std::vector<Value>& operands, const std::function<Tensor(const std::vector<Tensor>&)>& body);

/// Calls check(values, engine) with the sample's output from the reference, from the CPU engine on each instruction
/// set of this machine that it is compiled for, and there fused and unfused.
void for_each_engine(const Sample& sample,
                     const std::function<void(const std::vector<double>&, const std::string&)>& check);

/// Fails a test unless every engine gives these values.
void expect_everywhere(const Sample& sample, const std::vector<double>& wanted, double relative = 1e-5,
                       double absolute = 1e-6);

/// The same, with the reference in f64 as the expected values.
void expect_like_the_reference(const Sample& sample, double relative = 1e-4, double absolute = 1e-5);

}  // namespace jerboa::test
