#pragma once

#include <cstdint>

#include <jerboa/ir/packed_cache.h>

// Rows of an 8-bit cache, whose words are stored as whole numbers.
namespace jerboa::reference {

void pack_row(const double* features, std::int64_t size, double* words);
void unpack_row(const double* words, std::int64_t size, double* features);

}  // namespace jerboa::reference
