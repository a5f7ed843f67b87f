#pragma once

#include <vector>

#include "backend/cpu/kernel.h"

namespace jerboa::cpu {

/// An operand or result of an op on whole tensors, with numbers for sizes.
struct BoundTensor {
  DType dtype = DType::f32;
  Sizes sizes;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
  std::byte* data = nullptr;  ///< null if absent

  bool present() const { return data != nullptr; }
  std::int64_t size(std::size_t axis) const { return sizes[axis]; }
};

/// The context of an op on whole tensors.
class WholeCall {
 public:
  WholeCall(const Attrs& attrs, std::vector<BoundTensor> operands, std::vector<BoundTensor> results, Workers& workers)
      : attrs_(attrs), operands_(std::move(operands)), results_(std::move(results)), workers_(workers) {}

  template <class A>
  const A& as() const {
    return std::get<A>(attrs_);
  }
  const BoundTensor& operand(std::size_t i) const { return operands_[i]; }
  const BoundTensor& result(std::size_t i) const { return results_[i]; }
  std::size_t operands() const { return operands_.size(); }
  std::size_t results() const { return results_.size(); }
  ThreadPool& pool() const { return workers_.pool; }
  bool integer_products() const { return workers_.integer_products; }

  /// The operand in row-major order, as f32 or as the 32 bits of another type: itself, or a copy. Null if absent.
  const float* contiguous(std::size_t i);
  const std::int32_t* contiguous_integers(std::size_t i) {
    return reinterpret_cast<const std::int32_t*>(contiguous(i));
  }
  /// Memory for the result in row-major order; finish() copies it to its final layout.
  float* contiguous_result(std::size_t i);
  std::int32_t* contiguous_integer_result(std::size_t i) {
    return reinterpret_cast<std::int32_t*>(contiguous_result(i));
  }
  /// The operand itself, if its elements have 32 bits and its last axis is contiguous; otherwise a row-major copy, with
  /// its strides.
  const float* with_strides(std::size_t i, std::vector<std::int64_t>& strides);
  float* result_with_strides(std::size_t i, std::vector<std::int64_t>& strides);
  /// The operand itself, if it is f16 and its last axis is contiguous; otherwise null.
  const std::uint16_t* halves_with_strides(std::size_t i, std::vector<std::int64_t>& strides) const;
  /// The words of an 8-bit cache, or a copy of them; null if it is not an 8-bit cache.
  const std::uint32_t* words_with_strides(std::size_t i, std::vector<std::int64_t>& strides);
  void finish();

 private:
  float* copy(std::vector<float>&& values);

  const Attrs& attrs_;
  std::vector<BoundTensor> operands_, results_;
  Workers& workers_;
  std::vector<std::vector<float>> copies_;
  struct Pending {
    std::size_t result;
    float* values;
  };
  std::vector<Pending> pending_;
};

}  // namespace jerboa::cpu
