#pragma once

#include <optional>
#include <string>

#include "ops/sample.h"

namespace jerboa::test {

/// The bounds for a sample whose floats are f16 or bf16, by the rule above the op table: each op computes in f32 from
/// its operands, and its result is rounded to its type or not at all.
///
/// The centre is the reference in f64 at the operands rounded to the type, with no rounding after that. How far a
/// result may be from it depends on how the ops pass on the errors of their operands, so that is measured: the graph,
/// decomposed into the ops that engines compute, is evaluated several times with every 16-bit value moved to one of
/// its two neighbours in the type, up or down at random, and then again the other way. Values that the type represents
/// exactly stay. Such a move is up to two unit roundoffs u of the value's magnitude (u = 2^-11 for f16, 2^-8 for bf16),
/// twice what rounding to nearest can do. So the outputs move by the sum, over all values in between, of u times the
/// value's magnitude times the output's slope in it, as chance adds it up. An element may be off by three times its
/// largest move, one rounding of the result, and the error of f32 arithmetic. Where rounding crosses a step, as that of
/// floor, the runs cross it too.
class SixteenBits {
 public:
  explicit SixteenBits(const Sample& sample);

  /// Describes what is wrong with these outputs; empty if they are within the bounds.
  std::optional<std::string> difference(const TensorMap& computed) const;

 private:
  struct Bounds {
    std::string name;
    Value exact;
    std::vector<double> error;
  };
  std::vector<Bounds> outputs_;
};

/// The samples of a case in 16-bit floats, forward and, where it has one, with its gradient; none without float
/// operands.
std::vector<Sample> sixteen_bit_samples(Op op, const Case& sample, DType floats);

}  // namespace jerboa::test
