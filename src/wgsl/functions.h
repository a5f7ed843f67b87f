#pragma once

#include <set>
#include <string>

namespace jerboa::wgsl {

/// Functions that WGSL lacks, or whose accuracy it does not guarantee: erf_f32, tanh_f32, expm1_f32, log_f32,
/// log1p_f32, sin_f32, cos_f32, pow_f32, mod_f32, round_bf16, random_uniform, random_normal. Returns the source of
/// those named and of the ones that they use.
std::string function_texts(const std::set<std::string>& names);

}  // namespace jerboa::wgsl
