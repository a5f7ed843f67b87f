#pragma once

#include <string>

#include "wgsl/body.h"
#include "wgsl/four_writer.h"
#include "wgsl/product/problem.h"

namespace jerboa::wgsl {

/// The computation on a product's results: the kernel's body and its stores, as functions of the shader.
class Epilogue {
 public:
  Epilogue(Shader& shader, const KernelSpec& kernel, const MatmulProblem& problem)
      : shader_(shader), kernel_(kernel), problem_(problem) {}

  /// Writes `fn finish(batch, row, column, product: f32)`. If the body reads a companion's result, `companion` is its
  /// binding, and the function is `fn finish(batch, row, column, product: f32, other: f32)`.
  void write(int companion = -1);
  /// Writes `fn NAME(batch, row, column, product: f32) -> f32`: the only result that the kernel stores.
  void write_value(const std::string& name);
  /// Writes `fn finish_four(batch, row, column, products: vec4f)`: four results of a row, from a column that is a
  /// multiple of 4. Adjacent elements are read and written at once. Requires can_take_four().
  void write_four();
  /// The same with the values that it loads at (row, column) as further arguments, for forms whose threads finish
  /// several vectors: loads that follow a store wait for it. Also writes the functions that load them, `early_0`,
  /// `early_1`, …, of (batch, row, column), and returns their number.
  int write_four_after_loads();
  /// Whether rows of results begin at offsets where four can be read at once.
  bool can_take_four() const { return is_multiple(problem_.columns, 4); }

 private:
  BodyWriter body(int companion = -1);
  std::vector<std::string> write_indices();
  FourWriter four_writer();

  Shader& shader_;
  const KernelSpec& kernel_;
  const MatmulProblem& problem_;
};

/// Partial results, [batch][chunks][rows][columns] of f32, which add up to the products.
class PartialResults {
 public:
  PartialResults(KernelWriter& writer, const MatmulProblem& problem, std::int64_t chunks);
  int memory() const { return memory_; }
  /// WGSL expression of a result's index in the part of `chunk`.
  std::string place(Shader& shader, const std::string& row, const std::string& column) const;
  /// Adds the shader that sums them.
  void write_sum(KernelWriter& writer) const;

 private:
  const MatmulProblem& problem_;
  std::int64_t chunks_;
  int memory_;
};

}  // namespace jerboa::wgsl
