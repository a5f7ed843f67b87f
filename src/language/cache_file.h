#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include <jerboa/language/model.h>

// Parts of the key/value cache as safetensors files: "tokens", and each layer's keys and values as blocks [n, heads,
// block, size]. Layers with windows may have only their last blocks. The metadata names the model.
namespace jerboa::language {

/// Writes the cached blocks of these tokens; returns how many tokens that covers.
std::int64_t write_cache_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                              serving::Scheduler& scheduler, Model& model);
/// Loads a file's blocks into the scheduler's prefix tree and the model's cache; returns how many tokens that adds to
/// it. Throws FileError, before anything changes, if the file does not fit the model.
std::int64_t read_cache_file(const std::filesystem::path& path, serving::Scheduler& scheduler, Model& model);

}  // namespace jerboa::language
