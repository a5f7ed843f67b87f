#pragma once

#include <compare>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "wgsl/product/form.h"
#include "wgsl/product/quantised.h"

namespace jerboa::wgsl {

/// What a form is chosen by: the sizes of a product, at the symbols' upper bounds, and how its operands are stored.
/// Kernels fused before and after it do not count.
struct ProductShape {
  DType a = DType::f32, b = DType::f32;  ///< as they are multiplied; for quantised weights, as they are stored
  bool mins = false;                     ///< of quantised weights
  bool transpose_a = false;              ///< stored as [inner, rows]
  bool transpose_b = false;              ///< stored as [columns, inner]
  std::int64_t rows = 0, inner = 0, columns = 0;
  int products = 1;  ///< computed at once (MatmulProblem)

  auto operator<=>(const ProductShape&) const = default;
  bool is_quantised() const { return b == DType::i8 || b == DType::i4; }
  /// "1024x256x768 f32, transposed b"
  std::string str() const;
};

/// The shape of a problem; none for batches of products, which are not tuned.
std::optional<ProductShape> shape_of(const MatmulProblem& problem);

using ProductForm = std::variant<MatmulForm, QuantisedForm>;
/// "tiles of 64x64x16, parts of 8x4, two buffers"
std::string describe(const MatmulForm& form);
std::string describe(const QuantisedForm& form);

/// The forms that are worth measuring for products of this shape.
std::vector<ProductForm> product_candidates(const Target& target, const ProductShape& shape);

/// Whether a form that was measured for a problem's shape suits the problem itself: a shape has the types that are
/// multiplied, but not whether a prologue produces them.
bool suits(const Target& target, const MatmulProblem& problem, const MatmulForm& form);

}  // namespace jerboa::wgsl
