#pragma once

#include <filesystem>

namespace jerboa::models {

/// Makes a Hugging Face folder of a model in llama2.c's format (its first version, f32): config.json,
/// generation_config.json and model.safetensors. The tokenizer is not part of such a file; llama2.c's tokenizer.bin in
/// the same folder does. Throws FileError where the file is not what it should be; nothing half-written stays.
void import_llama2c(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace jerboa::models
