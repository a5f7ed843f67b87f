#pragma once

#include <cstdint>

#include <jerboa/ir/graph.h>

namespace jerboa {

/// The types that a model computes in.
enum class Precision : std::uint8_t {
  full,      ///< in the types that the model is written in, by default f32
  mixed_f16  ///< products and attention in f16 with f32 sums, activations between them in f16, everything else in f32
};

/// A forward graph in mixed precision. It inserts casts and narrows the types of activations; the types of inputs,
/// parameters, states, outputs and captures stay as they are, so that checkpoints do not depend on the precision.
///
/// - Products, convolutions and attention take f16 operands and produce f16 results; they accumulate in f32.
/// - Ops that lose little by it (binary sums, activations, rotations) stay in f16 if all their operands are f16, with
/// parameters and constants cast to match, and their result is read as f16, in the end by a product. What only moves
/// values stays in f16 whoever reads it. An f32 operand, such as a residual stream, makes the result f32.
/// - Norms, softmax, losses, reductions, exponentials and whatever else is sensitive compute in f32.
///
/// The traits Half and KeepsHalf in the op table mark them.
///
/// Gradients that are appended to the result follow it: they are f16 where the activation is, and f32 for parameters.
Graph with_precision(const Graph& graph, Precision precision);

}  // namespace jerboa
