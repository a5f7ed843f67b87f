#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <jerboa/io/tensor_source.h>

namespace jerboa {

/// Writes all tensors of a source as a safetensors file, atomically and one tensor at a time, so that only the largest
/// must fit in memory. Floats are converted to `floats` if it is given: F32, F16 or BF16. Throws UsageError for another
/// type, and FileError.
void write_safetensors(const std::filesystem::path& path, const TensorSource& tensors,
                       std::optional<StoredType> floats = {}, const std::map<std::string, std::string>& metadata = {});

}  // namespace jerboa
