#include <algorithm>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Matrix products.
namespace jerboa::reference {
namespace {

// A matrix inside a tensor; a transposed one has its strides exchanged.
struct Matrix {
  const double* data;
  std::int64_t row_stride, column_stride;

  double operator()(std::int64_t row, std::int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

Matrix matrix(const double* data, std::int64_t stored_columns, bool transposed) {
  return transposed ? Matrix{data, 1, stored_columns} : Matrix{data, stored_columns, 1};
}

// out[rows, columns] += a[rows, inner] b[inner, columns]
void add_product(const Matrix& a, const Matrix& b, double* out, std::int64_t rows, std::int64_t inner,
                 std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < inner; ++k) {
      const double factor = a(i, k);
      for (std::int64_t j = 0; j < columns; ++j) out[i * columns + j] += factor * b(k, j);
    }
}

// Strides over the leading axes of a batch of matrices, broadcasting; `shape` ends in the two axes of a matrix.
Sizes batch_strides(const Sizes& shape, const Sizes& batch) {
  Sizes strides = broadcast_strides(Sizes(shape.begin(), shape.end() - 2), batch);
  for (std::int64_t& stride : strides) stride *= shape[shape.size() - 2] * shape.back();
  return strides;
}

struct Group {
  std::int64_t begin, end;
};

// The rows of group g, clamped to the existing rows.
Group group_rows(const Value& offsets, std::int64_t g, std::int64_t rows) {
  const std::int64_t begin = std::clamp<std::int64_t>(static_cast<std::int64_t>(offsets.data[g]), 0, rows);
  const std::int64_t end = std::clamp<std::int64_t>(static_cast<std::int64_t>(offsets.data[g + 1]), begin, rows);
  return {begin, end};
}

// Some rows of operand 0 times the transpose of the matrix [columns, inner] that begins at an element of operand 1, an
// int8 or int4 weight.
void multiply_quantised(const Call& call, std::int64_t begin, std::int64_t end, std::int64_t columns,
                        std::int64_t first) {
  constexpr std::int64_t group = quantised_group;
  const Value &x = call.in(0), &weight = call.in(1), &scales = call.in(2);
  const std::int64_t inner = weight.shape.back();
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      double total = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t at = first + column * inner + k;
        const double min = call.has(3) ? call.in(3).data[at / group] : 0;
        total += x.data[row * inner + k] * (weight.data[at] * scales.data[at / group] + min);
      }
      call.out().data[row * columns + column] = total;
    }
}

}  // namespace

template <>
void evaluate<Op::matmul>(const Call& call) {
  const auto& attrs = call.as<MatmulAttrs>();
  const Value &a = call.in(0), &b = call.in(1);
  Value& out = call.out();
  const std::int64_t rows = out.shape[out.shape.size() - 2], columns = out.shape.back();
  const std::int64_t inner = attrs.transpose_a ? a.shape[a.shape.size() - 2] : a.shape.back();
  const Sizes batch(out.shape.begin(), out.shape.end() - 2);
  const Sizes a_strides = batch_strides(a.shape, batch), b_strides = batch_strides(b.shape, batch);
  double* destination = out.data.data();
  for_each_index(batch, [&](const Sizes& index) {
    add_product(matrix(a.data.data() + offset_of(index, a_strides), a.shape.back(), attrs.transpose_a),
                matrix(b.data.data() + offset_of(index, b_strides), b.shape.back(), attrs.transpose_b), destination,
                rows, inner, columns);
    destination += rows * columns;
  });
}

template <>
void evaluate<Op::dequantise>(const Call& call) {
  constexpr std::size_t group = quantised_group;
  const Value &weight = call.in(0), &scales = call.in(1);
  for (std::size_t i = 0; i < weight.data.size(); ++i)
    call.out().data[i] = weight.data[i] * scales.data[i / group] + (call.has(2) ? call.in(2).data[i / group] : 0);
}

template <>
void evaluate<Op::matmul_quantised>(const Call& call) {
  const std::int64_t columns = call.in(1).shape[0], inner = call.in(1).shape[1];
  const std::int64_t rows = inner == 0 ? 0 : static_cast<std::int64_t>(call.in(0).data.size()) / inner;
  multiply_quantised(call, 0, rows, columns, 0);
}

template <>
void evaluate<Op::matmul_grouped>(const Call& call) {
  const bool transposed = call.as<GroupedAttrs>().transpose_b;
  const Value &x = call.in(0), &w = call.in(1), &offsets = call.in(2);
  const std::int64_t groups = w.shape[0], inner = x.shape[1], columns = call.out().shape[1];
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, end] = group_rows(offsets, g, x.shape[0]);
    add_product(matrix(x.data.data() + begin * inner, inner, false),
                matrix(w.data.data() + g * inner * columns, w.shape[2], transposed),
                call.out().data.data() + begin * columns, end - begin, inner, columns);
  }
}

template <>
void evaluate<Op::matmul_grouped_quantised>(const Call& call) {
  const Value &weight = call.in(1), &offsets = call.in(4);
  const std::int64_t columns = weight.shape[1], inner = weight.shape[2];
  for (std::int64_t g = 0; g < weight.shape[0]; ++g) {
    const auto [begin, end] = group_rows(offsets, g, call.in(0).shape[0]);
    multiply_quantised(call, begin, end, columns, g * columns * inner);
  }
}

template <>
void evaluate<Op::matmul_grouped_weight_grad>(const Call& call) {
  const Value &x = call.in(0), &dy = call.in(1), &offsets = call.in(2);
  const std::int64_t groups = call.out().shape[0], rows = x.shape[1], columns = dy.shape[1];
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto [begin, end] = group_rows(offsets, g, x.shape[0]);
    add_product(matrix(x.data.data() + begin * rows, rows, true),
                matrix(dy.data.data() + begin * columns, columns, false), call.out().data.data() + g * rows * columns,
                rows, end - begin, columns);
  }
}

}  // namespace jerboa::reference
