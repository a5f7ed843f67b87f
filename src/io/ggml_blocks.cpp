#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/io/gguf.h>

#include "io/ggml_grids.h"
#include "io/gguf_header.h"

// Decodes ggml's blocks. Results must be bit-identical to ggml's, so every expression keeps ggml's order of f32
// operations; this file is compiled without contraction to fused multiply-add.
namespace jerboa {
namespace {

using Byte = std::uint8_t;

constexpr int large_block = 256;

float f16_at(const Byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return f16_to_f32(bits);
}

std::uint16_t u16_at(const Byte* at) {
  std::uint16_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint32_t u32_at(const Byte* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

int low(Byte byte) { return byte & 0xF; }
int high(Byte byte) { return byte >> 4; }
bool bit(std::uint32_t bits, int index) { return (bits >> index & 1) != 0; }

void f32(const Byte* block, float* y) { std::memcpy(y, block, sizeof *y); }
void f16(const Byte* block, float* y) { *y = f16_at(block); }
void bf16(const Byte* block, float* y) { *y = bf16_to_f32(u16_at(block)); }

// Blocks of 32: a scale d, sometimes a minimum m; byte j holds the low bits of values j and j + 16.

void q4_0(const Byte* block, float* y) {
  const float d = f16_at(block);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(block[2 + j]) - 8) * d;
    y[j + 16] = static_cast<float>(high(block[2 + j]) - 8) * d;
  }
}

void q4_1(const Byte* block, float* y) {
  const float d = f16_at(block), m = f16_at(block + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(block[4 + j])) * d + m;
    y[j + 16] = static_cast<float>(high(block[4 + j])) * d + m;
  }
}

void q5_0(const Byte* block, float* y) {
  const float d = f16_at(block);
  const std::uint32_t fifth = u32_at(block + 2);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((low(block[6 + j]) | (bit(fifth, j) ? 16 : 0)) - 16) * d;
    y[j + 16] = static_cast<float>((high(block[6 + j]) | (bit(fifth, j + 16) ? 16 : 0)) - 16) * d;
  }
}

void q5_1(const Byte* block, float* y) {
  const float d = f16_at(block), m = f16_at(block + 2);
  const std::uint32_t fifth = u32_at(block + 4);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(low(block[8 + j]) | (bit(fifth, j) ? 16 : 0)) * d + m;
    y[j + 16] = static_cast<float>(high(block[8 + j]) | (bit(fifth, j + 16) ? 16 : 0)) * d + m;
  }
}

void q8_0(const Byte* block, float* y) {
  const float d = f16_at(block);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<std::int8_t>(block[2 + j])) * d;
}

// Blocks of 256 ("K"): groups of 16 or 32 with small integer scales, and minimums, that share f16 factors.

void q2_k(const Byte* block, float* y) {
  const Byte *scales = block, *q = block + 16;
  const float d = f16_at(block + 80), least = f16_at(block + 82);
  for (int half = 0; half < 2; ++half, q += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int part = 0; part < 2; ++part, ++scales, y += 16) {
        const float scale = d * static_cast<float>(low(*scales)), m = least * static_cast<float>(high(*scales));
        for (int l = 0; l < 16; ++l) y[l] = scale * static_cast<float>(q[16 * part + l] >> shift & 3) - m;
      }
}

// Sixteen scales of 6 bits: the low four in eight bytes, the high two in four.
std::array<int, 16> scales_of_q3_k(const Byte* packed) {
  std::array<int, 16> scales{};
  for (int i = 0; i < 16; ++i) {
    const int four = i < 8 ? low(packed[i]) : high(packed[i - 8]);
    scales[static_cast<std::size_t>(i)] = (four | (packed[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
  }
  return scales;
}

void q3_k(const Byte* block, float* y) {
  const Byte *third = block, *q = block + 32;
  const auto scales = scales_of_q3_k(block + 96);
  const float d = f16_at(block + 108);
  std::size_t group = 0;
  for (int half = 0; half < 2; ++half, q += 32)
    for (int pair = 0; pair < 4; ++pair)
      for (int part = 0; part < 2; ++part, ++group, y += 16) {
        const float scale = d * static_cast<float>(scales[group]);
        for (int l = 0; l < 16; ++l) {
          const int at = 16 * part + l;
          y[l] = scale * static_cast<float>((q[at] >> 2 * pair & 3) - (bit(third[at], 4 * half + pair) ? 0 : 4));
        }
      }
}

/// The scale and the minimum of group i in Q4_K and Q5_K: 6 bits each, in twelve bytes.
struct ScaleAndMinimum {
  ScaleAndMinimum(const Byte* packed, int i)
      : scale(i < 4 ? packed[i] & 63 : low(packed[i + 4]) | packed[i - 4] >> 6 << 4),
        minimum(i < 4 ? packed[i + 4] & 63 : high(packed[i + 4]) | packed[i] >> 6 << 4) {}
  int scale, minimum;
};

void q4_k(const Byte* block, float* y) {
  const float d = f16_at(block), least = f16_at(block + 2);
  const Byte* q = block + 16;
  for (int group = 0; group < 8; ++group, y += 32) {
    const ScaleAndMinimum packed(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale), m = least * static_cast<float>(packed.minimum);
    const Byte* from = q + std::ptrdiff_t{group / 2} * 32;
    for (int l = 0; l < 32; ++l) y[l] = scale * static_cast<float>(group % 2 == 0 ? low(from[l]) : high(from[l])) - m;
  }
}

void q5_k(const Byte* block, float* y) {
  const float d = f16_at(block), least = f16_at(block + 2);
  const Byte *fifth = block + 16, *q = block + 48;
  for (int group = 0; group < 8; ++group, y += 32) {
    const ScaleAndMinimum packed(block + 4, group);
    const float scale = d * static_cast<float>(packed.scale), m = least * static_cast<float>(packed.minimum);
    const Byte* from = q + std::ptrdiff_t{group / 2} * 32;
    for (int l = 0; l < 32; ++l) {
      const int four = group % 2 == 0 ? low(from[l]) : high(from[l]);
      y[l] = scale * static_cast<float>(four + (bit(fifth[l], group) ? 16 : 0)) - m;
    }
  }
}

void q6_k(const Byte* block, float* y) {
  const float d = f16_at(block + 208);
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int l = 0; l < 32; ++l, ++y) {
        const Byte four = block[64 * half + 32 * (quarter % 2) + l];
        const int two = block[128 + 32 * half + l] >> 2 * quarter & 3;
        const int q = ((quarter < 2 ? low(four) : high(four)) | two << 4) - 32;
        const auto scale = static_cast<std::int8_t>(block[192 + 8 * half + 2 * quarter + l / 16]);
        *y = d * static_cast<float>(scale) * static_cast<float>(q);
      }
}

// The IQ types: vectors from tables (ggml_grids.h), with signs.

constexpr std::array<Byte, 4> iq2_magnitudes{8, 25, 43, 0};
constexpr std::array<Byte, 8> iq3_xxs_magnitudes{4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<Byte, 8> iq3_s_magnitudes{1, 3, 5, 7, 9, 11, 13, 15};

/// Writes the vector that `code` encodes, times a scale, with the sign of each value from a bit.
template <std::size_t Count>
void put_vector(std::uint16_t code, const std::array<Byte, Count>& magnitudes, float scale, std::uint32_t signs,
                float* y) {
  constexpr int digit = Count == 4 ? 2 : 3, length = Count == 4 ? 8 : 4;
  for (int j = 0; j < length; ++j)
    y[j] = scale * static_cast<float>(magnitudes[code >> digit * j & (Count - 1)]) * (bit(signs, j) ? -1.0F : 1.0F);
}

/// Eight signs from 7 bits: an even number of them is negative.
std::uint32_t even_signs(std::uint32_t seven) {
  seven &= 127;
  return seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1) << 7;
}

void iq2_xxs(const Byte* block, float* y) {
  const float d = f16_at(block);
  for (int group = 0; group < 8; ++group) {
    const Byte* indices = block + 2 + std::ptrdiff_t{8} * group;
    const std::uint32_t rest = u32_at(indices + 4);
    const float scale = d * (0.5F + static_cast<float>(rest >> 28)) * 0.25F;
    for (int l = 0; l < 4; ++l, y += 8)
      put_vector(io::iq2_xxs_grid[indices[l]], iq2_magnitudes, scale, even_signs(rest >> 7 * l), y);
  }
}

/// The scale of vector `l` of a group in IQ2_XS and IQ2_S.
float iq2_scale(float d, Byte packed, int l) {
  return d * (0.5F + static_cast<float>(l < 2 ? low(packed) : high(packed))) * 0.25F;
}

void iq2_xs(const Byte* block, float* y) {
  const float d = f16_at(block);
  for (int group = 0; group < 8; ++group)
    for (int l = 0; l < 4; ++l, y += 8) {
      const std::uint16_t packed = u16_at(block + 2 + std::ptrdiff_t{2} * (4 * group + l));
      put_vector(io::iq2_xs_grid[packed & 511], iq2_magnitudes, iq2_scale(d, block[66 + group], l),
                 even_signs(packed >> 9), y);
    }
}

void iq2_s(const Byte* block, float* y) {
  const float d = f16_at(block);
  const Byte *indices = block + 2, *signs = block + 34, *upper = block + 66, *scales = block + 74;
  for (int group = 0; group < 8; ++group)
    for (int l = 0; l < 4; ++l, ++indices, ++signs, y += 8)
      put_vector(io::iq2_s_grid[*indices | static_cast<std::size_t>(upper[group] >> 2 * l & 3) << 8], iq2_magnitudes,
                 iq2_scale(d, scales[group], l), *signs, y);
}

void iq3_xxs(const Byte* block, float* y) {
  const float d = f16_at(block);
  const Byte* indices = block + 2;
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t rest = u32_at(block + 66 + std::ptrdiff_t{4} * group);
    const float scale = d * (0.5F + static_cast<float>(rest >> 28)) * 0.5F;
    for (int l = 0; l < 8; ++l, ++indices, y += 4)
      put_vector(io::iq3_xxs_grid[*indices], iq3_xxs_magnitudes, scale, even_signs(rest >> 7 * (l / 2)) >> 4 * (l % 2),
                 y);
  }
}

void iq3_s(const Byte* block, float* y) {
  const float d = f16_at(block);
  const Byte *indices = block + 2, *ninth = block + 66, *signs = block + 74, *scales = block + 106;
  for (int group = 0; group < 8; ++group) {
    const Byte packed = scales[group / 2];
    const float scale = d * static_cast<float>(1 + 2 * (group % 2 == 0 ? low(packed) : high(packed)));
    for (int l = 0; l < 8; ++l, ++indices, y += 4)
      put_vector(io::iq3_s_grid[*indices | (bit(ninth[group], l) ? 256U : 0U)], iq3_s_magnitudes, scale,
                 static_cast<std::uint32_t>(signs[4 * group + l / 2]) >> 4 * (l % 2), y);
  }
}

// IQ4: 4-bit indices into values that are denser around 0.
constexpr std::array<int, 16> iq4_values{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void put_iq4(const Byte* q, float scale, float* y) {
  for (int j = 0; j < 16; ++j) {
    y[j] = scale * static_cast<float>(iq4_values[static_cast<std::size_t>(low(q[j]))]);
    y[j + 16] = scale * static_cast<float>(iq4_values[static_cast<std::size_t>(high(q[j]))]);
  }
}

void iq4_nl(const Byte* block, float* y) { put_iq4(block + 2, f16_at(block), y); }

void iq4_xs(const Byte* block, float* y) {
  const float d = f16_at(block);
  const std::uint16_t upper = u16_at(block + 2);
  for (int group = 0; group < 8; ++group, y += 32) {
    const Byte packed = block[4 + group / 2];
    const int scale = (group % 2 == 0 ? low(packed) : high(packed)) | (upper >> 2 * group & 3) << 4;
    put_iq4(block + 8 + std::ptrdiff_t{16} * group, d * static_cast<float>(scale - 32), y);
  }
}

struct BlockRow {
  GgmlType type;
  std::string_view name;
  std::size_t values, bytes;
  void (*dequantise)(const Byte* block, float* values);
};

constexpr std::array block_table{
    BlockRow{GgmlType::F32, "F32", 1, 4, f32},
    BlockRow{GgmlType::F16, "F16", 1, 2, f16},
    BlockRow{GgmlType::BF16, "BF16", 1, 2, bf16},
    BlockRow{GgmlType::Q4_0, "Q4_0", 32, 18, q4_0},
    BlockRow{GgmlType::Q4_1, "Q4_1", 32, 20, q4_1},
    BlockRow{GgmlType::Q5_0, "Q5_0", 32, 22, q5_0},
    BlockRow{GgmlType::Q5_1, "Q5_1", 32, 24, q5_1},
    BlockRow{GgmlType::Q8_0, "Q8_0", 32, 34, q8_0},
    BlockRow{GgmlType::Q2_K, "Q2_K", large_block, 84, q2_k},
    BlockRow{GgmlType::Q3_K, "Q3_K", large_block, 110, q3_k},
    BlockRow{GgmlType::Q4_K, "Q4_K", large_block, 144, q4_k},
    BlockRow{GgmlType::Q5_K, "Q5_K", large_block, 176, q5_k},
    BlockRow{GgmlType::Q6_K, "Q6_K", large_block, 210, q6_k},
    BlockRow{GgmlType::IQ2_XXS, "IQ2_XXS", large_block, 66, iq2_xxs},
    BlockRow{GgmlType::IQ2_XS, "IQ2_XS", large_block, 74, iq2_xs},
    BlockRow{GgmlType::IQ2_S, "IQ2_S", large_block, 82, iq2_s},
    BlockRow{GgmlType::IQ3_XXS, "IQ3_XXS", large_block, 98, iq3_xxs},
    BlockRow{GgmlType::IQ3_S, "IQ3_S", large_block, 110, iq3_s},
    BlockRow{GgmlType::IQ4_NL, "IQ4_NL", 32, 18, iq4_nl},
    BlockRow{GgmlType::IQ4_XS, "IQ4_XS", large_block, 136, iq4_xs},
};

const BlockRow* find_block_row(GgmlType type) {
  for (const BlockRow& row : block_table)
    if (row.type == type) return &row;
  return nullptr;
}

const BlockRow& block_row(GgmlType type) {
  if (const BlockRow* row = find_block_row(type)) return *row;
  throw UsageError(fmt::format("there is no tensor type {}", static_cast<std::uint32_t>(type)));
}

}  // namespace

namespace io {

std::optional<GgmlType> ggml_type(std::uint32_t number) {
  const auto type = static_cast<GgmlType>(number);
  return find_block_row(type) ? std::optional(type) : std::nullopt;
}

std::vector<std::string_view> ggml_type_names() {
  std::vector<std::string_view> names;
  for (const BlockRow& row : block_table) names.push_back(row.name);
  return names;
}

}  // namespace io

std::string_view to_string(GgmlType type) { return block_row(type).name; }
std::size_t block_values(GgmlType type) { return block_row(type).values; }
std::size_t block_bytes(GgmlType type) { return block_row(type).bytes; }

void dequantise(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const BlockRow& row = block_row(type);
  if (blocks.size() % row.bytes != 0 || blocks.size() / row.bytes != values.size() / row.values ||
      values.size() % row.values != 0)
    throw UsageError(fmt::format("{} bytes of {} are not {} values: {} bytes hold {}", blocks.size(), row.name,
                                 values.size(), row.bytes, row.values));
  const auto* from = reinterpret_cast<const Byte*>(blocks.data());
  for (std::size_t at = 0; at < values.size(); at += row.values, from += row.bytes)
    row.dequantise(from, values.data() + at);
}

}  // namespace jerboa
