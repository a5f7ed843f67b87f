#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include <jerboa/language/model.h>

// Parts of the key/value cache as safetensors files: "tokens", and for each layer's keys and values the blocks
// [n, heads, block, size], of layers with windows the last ones. The metadata says which model they belong to.
namespace jerboa::language {

/// Writes what is cached of a text; returns how many tokens that is.
std::int64_t write_cache_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                              serving::Scheduler& scheduler, Model& model);
/// Puts a file's blocks into the scheduler's prefix tree and the model's cache; returns how many more of its tokens
/// need not be computed now. Throws FileError, before anything changes, if the file does not fit the model.
std::int64_t read_cache_file(const std::filesystem::path& path, serving::Scheduler& scheduler, Model& model);

}  // namespace jerboa::language
