#pragma once

#include <filesystem>
#include <string>

#include <jerboa/language/text_encoder.h>

namespace jerboa::cli {

/// Writes vectors in the format of the file's extension: .npy (NumPy), .safetensors (one tensor "embeddings") or, for
/// any other, raw f32 values. Replaces an existing file.
void write_vectors(const std::filesystem::path& path, const Embeddings& vectors);

}  // namespace jerboa::cli
