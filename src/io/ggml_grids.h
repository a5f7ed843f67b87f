#pragma once

#include <array>
#include <cstdint>

// The tables of ggml's IQ types: vectors of magnitudes that its authors picked from a lattice by how often weights of
// language models are near them. A vector is stored as the digits of a number, the first digit in the lowest bits: for
// IQ2_*, eight digits of 2 bits, for 8, 25 and 43; for IQ3_*, four digits of 3 bits, for 4, 12, 20, 28, 36, 44, 52 and
// 62 (IQ3_XXS) or 1, 3, … 15 (IQ3_S).
namespace jerboa::io {

extern const std::array<std::uint16_t, 256> iq2_xxs_grid;
extern const std::array<std::uint16_t, 512> iq2_xs_grid;
extern const std::array<std::uint16_t, 1024> iq2_s_grid;
extern const std::array<std::uint16_t, 256> iq3_xxs_grid;
extern const std::array<std::uint16_t, 512> iq3_s_grid;

}  // namespace jerboa::io
