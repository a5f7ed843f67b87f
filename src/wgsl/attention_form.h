#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/base/dtype.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// The tile sizes of a shader on subgroup matrices (attention_matrices.h).
struct AttentionMatrixForm {
  int blocks = 2;             ///< blocks of 16 columns per subgroup: 1 or 2
  int subgroups = 4;          ///< per workgroup
  int tile_rows = 32;         ///< in workgroup memory at a time, a multiple of 16
  int lane_columns = 4;       ///< adjacent columns of the scores per thread: 1, 2 or 4
  bool fetches_ahead = true;  ///< fetch the next tile while this one is multiplied
  /// Barriers wherever the threads of a subgroup exchange data through workgroup memory, as WGSL requires. Without
  /// them, it is up to the device to keep a subgroup's accesses in order.
  bool barriers = true;

  bool operator==(const AttentionMatrixForm&) const = default;
  int columns() const { return blocks * 16; }
  int workgroup_columns() const { return columns() * subgroups; }
  int threads() const { return subgroups * 32; }
  std::int64_t workgroup_bytes(std::int64_t size) const;
  /// Whether a target can run it for heads of this size, and all threads fetch the same amount of a tile.
  bool fits(std::int64_t size, const Target& target) const;
};

/// How attention, or one of its gradients, is computed: plain data, so that measurements can override choose_attention.
struct AttentionForm {
  enum class Kind : std::uint8_t {
    matrices,  ///< subgroups multiply tiles of f16 as matrices
    rows,      ///< each thread computes some queries or keys straight from memory: for software drivers
    stream,    ///< few queries, with features across a workgroup's threads; keys stream past them
    decode,    ///< few queries, in workgroup memory, against many keys at a time
    tiles      ///< tiles of queries against tiles of keys, both in workgroup memory
  };
  Kind kind = Kind::tiles;
  AttentionMatrixForm matrices = {};  ///< for matrices
  int tile_rows = 64;                 ///< for tiles: rows per workgroup, 32 or 64
  int depth = 32;                     ///< for tiles: features in workgroup memory at a time, 16 or 32
  int queries = 1;                    ///< for stream and decode: per workgroup, a power of two
  int keys_at_a_time = 8;             ///< for stream: keys that a thread reads before it uses the first
  /// Parts that the keys of a query are split into, for all kinds but matrices. A second shader combines the results.
  std::int64_t parts = 1;

  bool operator==(const AttentionForm&) const = default;
};

/// Attention, its gradient for queries, or that for keys and values.
enum class AttentionPart : std::uint8_t { forward, dq, dkv };

/// What a form of attention is chosen by, at the symbols' upper bounds. Kernels fused before and after it do not count.
struct AttentionShape {
  AttentionPart part = AttentionPart::forward;
  DType dtype = DType::f32;      ///< of queries
  DType key_dtype = DType::f32;  ///< of keys and values
  std::int64_t batch = 0, heads = 0, key_heads = 0, time = 0, keys = 0, size = 0, value_size = 0;
  bool causal = false;
  bool cached = false;         ///< lengths and positions are data
  std::int64_t page_size = 0;  ///< of a paged cache; 0: contiguous

  auto operator<=>(const AttentionShape&) const = default;
  /// "8x8 heads of 32, 128 queries on 128 keys, f32, causal"
  std::string str() const;
};

struct Attention;

/// None for attention that is not tuned: with masks, sinks, windows, soft caps, rings or 8-bit caches.
std::optional<AttentionShape> shape_of(const Attention& attention, AttentionPart part);

/// The form of attention, which depends only on the target, the sizes and the layout. The kernel's op must be
/// attention.
AttentionForm choose_attention(const KernelWriter& writer, const Attention& attention);

struct AttentionGrad;
struct AttentionGradForms {
  AttentionForm dq, dkv;  ///< always of the same kind
};
AttentionGradForms choose_attention_grad(const KernelWriter& writer, const AttentionGrad& attention);

/// The forms that are worth measuring for attention of this shape.
std::vector<AttentionForm> attention_candidates(const Target& target, const AttentionShape& shape);

}  // namespace jerboa::wgsl
