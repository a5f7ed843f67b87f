#include "models/round_for_products.h"

#include <cmath>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>

#include "base/in_parallel.h"

// The method is GPTQ's (arXiv 2210.17323) without the inverse: rounding in the opposite order needs only U.
namespace jerboa::models {
namespace {

// Added to the diagonal, relative to its mean, so that features which are missing from the sample still count.
constexpr double damping = 0.01;

// Computes the upper Cholesky factor of a symmetric row-major matrix in place; the part below the diagonal is left
// unchanged. Works in panels of rows, so that the matrix passes through the cache less often.
void factor(std::vector<float>& matrix, std::size_t size) {
  const auto row = [&](std::size_t i) { return matrix.data() + i * size; };
  for (std::size_t first = 0; first < size; first += group_size) {
    const std::size_t end = std::min(first + group_size, size);
    for (std::size_t k = first; k < end; ++k) {
      const float root = std::sqrt(std::max(row(k)[k], 1e-20F)), inverse = 1 / root;
      for (std::size_t j = k; j < size; ++j) row(k)[j] *= inverse;
      row(k)[k] = root;
      for (std::size_t i = k + 1; i < end; ++i)
        for (std::size_t j = i; j < size; ++j) row(i)[j] -= row(k)[i] * row(k)[j];
    }
    detail::in_parallel(static_cast<std::int64_t>(size - end), 64, [&](std::int64_t begin, std::int64_t stop) {
      for (std::size_t i = end + static_cast<std::size_t>(begin); i < end + static_cast<std::size_t>(stop); ++i)
        for (std::size_t k = first; k < end; ++k) {
          const float factor = row(k)[i];
          float* to = row(i);
          const float* from = row(k);
          for (std::size_t j = i; j < size; ++j) to[j] -= factor * from[j];
        }
    });
  }
}

// Weight i takes over the share U[i, j] / U[i, i] of weight j's rounding error, within a block.
class Compensation {
 public:
  Compensation(std::vector<float> sums, std::size_t size) : size_(size) {
    if (sums.size() != size * size) throw UsageError("the sums of a product's inputs do not fit its weight");
    double mean = 0;
    for (std::size_t i = 0; i < size; ++i) mean += static_cast<double>(sums[i * size + i]) / static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i) sums[i * size + i] += static_cast<float>(std::max(damping * mean, 1e-12));
    factor(sums, size);
    importance_.resize(size);
    for (std::size_t i = 0; i < size; ++i) importance_[i] = sums[i * size + i] * sums[i * size + i];
    transposed_.resize(size * size);
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = i + 1; j < size; ++j) transposed_[place(i, j)] = sums[i * size + j] / sums[i * size + i];
  }

  /// The shares that the weights of a group take of weight j's error.
  const float* of(std::size_t group, std::size_t j) const { return transposed_.data() + place(group * group_size, j); }
  /// U[i, i]^2 for the weights of a group, relative to the largest: how much the squared rounding error of each
  /// compensated weight counts in the total.
  Group importance_of(std::size_t group) const {
    Group found;
    std::copy_n(importance_.begin() + static_cast<std::ptrdiff_t>(group * group_size), group_size, found.begin());
    const float largest = *std::max_element(found.begin(), found.end());
    for (float& value : found) value /= largest;
    return found;
  }

 private:
  // Groups of i are stored one after another, and by j within each.
  std::size_t place(std::size_t i, std::size_t j) const {
    return (i / group_size * size_ + j) * group_size + i % group_size;
  }

  std::size_t size_;
  std::vector<float> transposed_, importance_;
};

// A block of one row: its weights, and the errors of those that are rounded already.
class RowBlock {
 public:
  RowBlock(std::span<const float> values, const Compensation& compensation)
      : values_(values), compensation_(compensation), errors_(values.size()) {}

  void round(const GroupWriter& writer, std::int64_t first_group) {
    for (std::size_t group = values_.size() / group_size; group-- > 0;)
      round_group(group, writer, first_group + static_cast<std::int64_t>(group));
  }

 private:
  void round_group(std::size_t group, const GroupWriter& writer, std::int64_t number) {
    const std::size_t first = group * group_size;
    Group wanted, integers;
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(first), group_size, wanted.begin());
    for (std::size_t j = first + group_size; j < values_.size(); ++j) add(wanted, group, j);
    const Group importance = compensation_.importance_of(group);
    const GroupScale stored = fit_group(wanted, writer.dtype(), &importance);
    const Rounding rounding = writer.rounding(stored);
    const float scale = f16_to_f32(stored.scale), min = f16_to_f32(stored.min);
    for (std::size_t i = group_size; i-- > 0;) {
      integers[i] = rounding(wanted[i]);
      errors_[first + i] = values_[first + i] - (integers[i] * scale + min);
      add(wanted, group, first + i);  // changes only the weights before i
    }
    writer.write(number, stored, integers);
  }

  void add(Group& wanted, std::size_t group, std::size_t j) const {
    const float* shares = compensation_.of(group, j);
    const float error = errors_[j];
    for (std::size_t i = 0; i < group_size; ++i) wanted[i] += error * shares[i];
  }

  std::span<const float> values_;
  const Compensation& compensation_;
  std::vector<float> errors_;
};

}  // namespace

GroupWriter::GroupWriter(const QuantisedView& to, std::int64_t first_group)
    : dtype_(to.dtype),
      group_bytes_(quantised_group * bits(dtype_) / 8),
      weights_(reinterpret_cast<std::uint8_t*>(to.weight.data()) + first_group * group_bytes_),
      scales_(to.scales.data() + first_group),
      mins_(to.mins.empty() ? nullptr : to.mins.data() + first_group) {}

Rounding GroupWriter::rounding(GroupScale scale) const {
  return {f16_to_f32(scale.scale), f16_to_f32(scale.min), range_of(dtype_)};
}

void GroupWriter::write(std::int64_t group, GroupScale scale, const Group& integers) const {
  pack_group(integers, dtype_, weights_ + group * group_bytes_);
  scales_[group] = scale.scale;
  if (mins_ != nullptr) mins_[group] = scale.min;
}

GroupMemory GroupWriter::from(std::int64_t group) const {
  return {weights_ + group * group_bytes_, scales_ + group, mins_ == nullptr ? nullptr : mins_ + group};
}

void quantise_groups(std::span<const float> values, std::int64_t first_group, const GroupWriter& writer) {
  std::size_t done = 0;
#ifndef __EMSCRIPTEN__  // its build has no groups_in_lanes.cpp
  done = quantise_in_lanes(values, writer.dtype(), writer.from(first_group));
#endif
  quantise_one_by_one(values.subspan(done * group_size), first_group + static_cast<std::int64_t>(done), writer);
}

void quantise_one_by_one(std::span<const float> values, std::int64_t first_group, const GroupWriter& writer) {
  for (std::size_t at = 0; at < values.size(); at += group_size) {
    Group group, integers;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), group_size, group.begin());
    const GroupScale scale = fit_group(group, writer.dtype());
    const Rounding rounding = writer.rounding(scale);
    for (std::size_t i = 0; i < group_size; ++i) integers[i] = rounding(group[i]);
    writer.write(first_group++, scale, integers);
  }
}

void round_for_products(std::span<const float> values, std::int64_t in, const ProductInputs& inputs,
                        const GroupWriter& writer) {
  const std::int64_t rows = std::ssize(values) / in;
  std::size_t block = 0;
  for (std::int64_t first = 0; first < in; first += ProductInputs::block, ++block) {
    const std::int64_t size = std::min(ProductInputs::block, in - first);
    if (block >= inputs.sums.size()) throw UsageError("the sums of a product's inputs do not fit its weight");
    const Compensation compensation(inputs.sums[block], static_cast<std::size_t>(size));
    detail::in_parallel(rows, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto at = static_cast<std::size_t>(row * in + first);
        RowBlock(values.subspan(at, static_cast<std::size_t>(size)), compensation)
            .round(writer, (row * in + first) / quantised_group);
      }
    });
  }
}

}  // namespace jerboa::models
