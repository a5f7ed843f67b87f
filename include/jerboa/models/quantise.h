#pragma once

#include <optional>
#include <span>
#include <string_view>

#include <jerboa/base/host_tensor.h>
#include <jerboa/io/safetensors.h>

namespace jerboa::models {

/// The suffixes that name the parameters of a quantised weight.
inline constexpr std::string_view quantised_suffix = ".quantised";
inline constexpr std::string_view scales_suffix = ".scales";
inline constexpr std::string_view mins_suffix = ".mins";

/// A weight [out, in] as matmul_quantised takes it.
struct Quantised {
  HostTensor weight;                    ///< i8 or i4
  HostTensor scales;                    ///< f16[out, in / 32]
  std::optional<HostTensor> mins = {};  ///< as the scales, for int4
};

/// Rounds each group of 32 weights of a row to integers times a shared scale, from -127 to 127 for int8; for int4 from
/// -8 to 7, plus a shared minimum. Scales and minimums are those of the least squared error among a few candidates.
/// `in` must be a multiple of 32. Runs on all cores.
Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype);

/// The name of such a type for users: "int8" or "int4".
std::string_view quantised_name(DType dtype);

/// The type of the quantised weights in a checkpoint that quantise_folder wrote; none for others. Throws FileError for
/// a format that this version does not know.
std::optional<DType> quantised_type(const TensorSource& weights);

/// Writes a copy of a Hugging Face folder or a .gguf file as a folder with int8 or int4 matrices, which load without
/// being quantised again.
void quantise_folder(const std::filesystem::path& from, const std::filesystem::path& to, DType weights);

}  // namespace jerboa::models
