#include <algorithm>

#include "base/integers.h"
#include "wgsl/product/problem.h"
#include "wgsl/product/shape.h"

namespace jerboa::wgsl {
namespace {

using Kind = MatmulForm::Kind;

// Whether there are few rows, and operands are read 16 bytes at a time along the inner dimension.
bool is_of_vectors(const ProductShape& shape) {
  return !shape.is_quantised() && shape.rows <= most_vector_rows && shape.transpose_b && !shape.transpose_a;
}

void add_vectors(const Target& target, const ProductShape& shape, std::vector<ProductForm>& forms) {
  for (const int threads : {128, 256})
    for (const int lanes : {32, 64, 128, 256})
      for (const int part_columns : {1, 2, 4}) {
        if (threads > target.max_invocations || lanes > threads) continue;
        if (part_columns > 2 && (shape.rows > 1 || shape.products > 1)) continue;  // too many registers
        MatmulForm form{.kind = Kind::vectors};
        form.lanes = lanes;
        form.part_columns = part_columns;
        form.columns = threads / lanes * part_columns;
        constexpr int of_a_norm = 1;  // before them
        if (bytes_of_vectors(target, form, shape.rows, shape.products, of_a_norm) > target.workgroup_bytes) continue;
        forms.emplace_back(form);
      }
}

// Adds the form with the inner dimension whole, and in chunks while there are too few workgroups to fill the device.
void add_in_chunks(const Target& target, const ProductShape& shape, MatmulForm form, std::vector<ProductForm>& forms) {
  constexpr std::int64_t shortest = 64;
  const std::int64_t groups = detail::divide_up(shape.rows, form.rows) * detail::divide_up(shape.columns, form.columns);
  const std::int64_t residents = target.resident_workgroups > 0 ? target.resident_workgroups : 128;
  for (const int chunks : {1, 2, 3, 4, 6, 8, 12, 16}) {
    if (chunks > 1 && (groups * (chunks - 1) >= residents || shape.inner / chunks < shortest)) break;
    form.chunks = chunks;
    forms.emplace_back(form);
  }
}

void add_tiles(const Target& target, const ProductShape& shape, std::vector<ProductForm>& forms) {
  const bool halves = target.f16 && shape.a == DType::f16 && shape.b == DType::f16;
  for (const MatmulForm& form : tile_forms()) {
    if (halves && form.teams > 1) continue;
    if (form.threads() > target.max_invocations || form.workgroup_bytes(halves ? 2 : 4) > target.workgroup_bytes)
      continue;
    // Larger tiles would be mostly empty.
    if (form.rows > 32 && form.rows / 2 >= shape.rows) continue;
    if (form.columns > 32 && form.columns / 2 >= shape.columns) continue;
    add_in_chunks(target, shape, form, forms);
  }
}

void add_matrices(const Target& target, const ProductShape& shape, std::vector<ProductForm>& forms) {
  const bool multiplies_halves =
      shape.is_quantised() ? target.f16_arithmetic : shape.a == DType::f16 && shape.b == DType::f16;
  if (!target.f16 || target.subgroup_matrices == SubgroupMatrices::none || !multiplies_halves) return;
  for (const MatmulForm& form : matrix_forms())
    if (form.threads() <= target.max_invocations && form.workgroup_bytes() <= target.workgroup_bytes)
      add_in_chunks(target, shape, form, forms);
}

}  // namespace

std::vector<ProductForm> product_candidates(const Target& target, const ProductShape& shape) {
  std::vector<ProductForm> forms;
  if (shape.is_quantised() && shape.rows <= most_vector_rows) {
    for (const QuantisedForm& form : quantised_candidates(target, shape.b, shape.inner, shape.products))
      forms.emplace_back(form);
    return forms;
  }
  if (is_of_vectors(shape)) {
    add_vectors(target, shape, forms);
    return forms;
  }
  if (shape.rows <= most_vector_rows || shape.columns <= most_vector_rows) return forms;
  add_matrices(target, shape, forms);
  add_tiles(target, shape, forms);
  if (target.software) forms.emplace_back(MatmulForm{.kind = Kind::blocks});
  return forms;
}

}  // namespace jerboa::wgsl
