#pragma once

#include <filesystem>
#include <string>

#include <jerboa/language/text_encoder.h>

namespace jerboa::cli {

/// Writes vectors as a file of the format that its name ends with: .npy (NumPy), .safetensors (one tensor
/// "embeddings") or, for any other, the plain f32 values. Replaces what was there.
void write_vectors(const std::filesystem::path& path, const Embeddings& vectors);

}  // namespace jerboa::cli
