#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <jerboa/base/host_tensor.h>
#include <jerboa/models/family.h>

namespace jerboa::models {

/// The suffixes that name the parameters of a quantised weight.
inline constexpr std::string_view quantised_suffix = ".quantised";
inline constexpr std::string_view scales_suffix = ".scales";
inline constexpr std::string_view mins_suffix = ".mins";

/// The memory of a quantised weight, in the layout of HostTensor.
struct QuantisedView {
  DType dtype = DType::i4;
  std::span<std::byte> weight;
  std::span<std::uint16_t> scales, mins;  ///< no minimums: empty
};

/// A weight […, in], most often [out, in] as matmul_quantised takes it.
struct Quantised {
  HostTensor weight;                    ///< i8 or i4
  HostTensor scales;                    ///< f16[…, in / 32]
  std::optional<HostTensor> mins = {};  ///< like the scales, for int4

  /// Initialised to zeros. Throws UsageError unless `in` is a multiple of 32 and the type int8 or int4.
  Quantised(const std::vector<std::int64_t>& shape, DType dtype);

  QuantisedView view();
};

/// Rounds each group of 32 weights of a row to integers times a shared scale: from -127 to 127 for int8; from -8 to 7,
/// plus a shared minimum, for int4. Scales and minimums minimise the squared error among a few candidates. `in` must be
/// a multiple of 32. Runs on all cores.
Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype);

/// The information about a matrix's inputs that rounding uses: the sums of x xᵀ over some inputs x, for blocks of
/// adjacent features, [size, size] each.
struct ProductInputs {
  static constexpr std::int64_t block = 2048;  ///< features in a block; the last may have fewer
  std::vector<std::vector<float>> sums;
};

/// The same for some rows of a weight, starting at `first_row` of all its rows. With `inputs`, it minimises the error
/// of the products instead of that of the weights: each weight is rounded to compensate for the errors of those rounded
/// before it.
void quantise_rows(std::span<const float> values, std::int64_t first_row, Quantised& to,
                   const ProductInputs* inputs = nullptr);

/// The user-facing name of such a type: "int8" or "int4".
std::string_view quantised_name(DType dtype);

/// The type of the quantised weights in a checkpoint that quantise_folder wrote; none for others. Throws FileError for
/// a format that this version does not know.
std::optional<DType> quantised_type(const TensorSource& weights);

/// Writes a copy of a Hugging Face folder or a .gguf file as a folder with int8 or int4 matrices, which load without
/// being quantised again. It appears whole or not at all. Throws UsageError if something else exists in its place, or
/// if `from` is already such a folder.
void quantise_folder(const std::filesystem::path& from, const std::filesystem::path& to, DType weights,
                     const KnownInputs& inputs = {});

}  // namespace jerboa::models
