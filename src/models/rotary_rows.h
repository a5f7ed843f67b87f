#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace jerboa::models {

/// llama2.c and GGUF rotate adjacent rows of a head as a pair; Hugging Face pairs row i of the first half with row i of
/// the second. Copies the rows of all heads from the former order to the latter.
void halves_of_pairs(std::span<const std::byte> from, std::span<std::byte> to, std::int64_t heads,
                     std::int64_t head_size);

}  // namespace jerboa::models
