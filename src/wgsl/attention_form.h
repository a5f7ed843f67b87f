#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/base/dtype.h>

#include "wgsl/kernel_writer.h"

namespace jerboa::wgsl {

/// How one of the shaders on subgroup matrices is cut (attention_matrices.h).
struct AttentionMatrixForm {
  int blocks = 2;             ///< of 16 columns, that a subgroup owns: 1 or 2
  int subgroups = 4;          ///< of a workgroup
  int tile_rows = 32;         ///< that are in workgroup memory at a time: a multiple of 16
  int lane_columns = 4;       ///< neighbouring columns of the scores that a thread takes: 1, 2 or 4
  bool fetches_ahead = true;  ///< the next tile is fetched while this one is multiplied
  /// Barriers wherever the threads of a subgroup exchange data through workgroup memory, as WGSL asks for. Without
  /// them, it is up to the device that a subgroup's accesses stay in order.
  bool barriers = true;

  bool operator==(const AttentionMatrixForm&) const = default;
  int columns() const { return blocks * 16; }
  int workgroup_columns() const { return columns() * subgroups; }
  int threads() const { return subgroups * 32; }
  std::int64_t workgroup_bytes(std::int64_t size) const;
  /// Whether a target can run it for heads of this size, and all threads fetch equally much of a tile.
  bool fits(std::int64_t size, const Target& target) const;
};

/// How attention, or one of its gradients, is computed: plain data, so that measurements can override
/// choose_attention.
struct AttentionForm {
  enum class Kind : std::uint8_t {
    matrices,  ///< subgroups multiply tiles of f16 as matrices
    rows,      ///< each thread some queries or keys, straight from memory: for software drivers
    stream,    ///< few queries, whose features lie along a workgroup's threads; keys stream past them
    decode,    ///< few queries, in workgroup memory, against many keys at a time
    tiles      ///< tiles of queries against tiles of keys, both in workgroup memory
  };
  Kind kind = Kind::tiles;
  AttentionMatrixForm matrices = {};  ///< for matrices
  int tile_rows = 64;                 ///< for tiles: of a workgroup, 32 or 64
  int depth = 32;                     ///< for tiles: features that are in workgroup memory at a time, 16 or 32
  int queries = 1;                    ///< for stream and decode: of a workgroup, a power of two
  int keys_at_a_time = 8;             ///< for stream: that a thread reads before it uses the first
  /// Into which the keys of a query are cut, for all but matrices. A second shader puts the results together.
  std::int64_t parts = 1;

  bool operator==(const AttentionForm&) const = default;
};

/// What is computed: attention, or its gradient for queries, or that for keys and values.
enum class AttentionPart : std::uint8_t { forward, dq, dkv };

/// What a form of attention is chosen by, at the symbols' bounds. What is computed before and after it does not count.
struct AttentionShape {
  AttentionPart part = AttentionPart::forward;
  DType dtype = DType::f32;      ///< of queries
  DType key_dtype = DType::f32;  ///< of keys and values
  std::int64_t batch = 0, heads = 0, key_heads = 0, time = 0, keys = 0, size = 0, value_size = 0;
  bool causal = false;
  bool cached = false;         ///< lengths and positions are data
  std::int64_t page_size = 0;  ///< of a paged cache; 0: straight

  auto operator<=>(const AttentionShape&) const = default;
  /// "8x8 heads of 32, 128 queries on 128 keys, f32, causal"
  std::string str() const;
};

struct Attention;

/// None for attention that is not tuned: with masks, sinks, windows, soft caps, rings or 8-bit caches.
std::optional<AttentionShape> shape_of(const Attention& attention, AttentionPart part);

/// The form of attention: a function of target, sizes and layout alone. The kernel's op is attention.
AttentionForm choose_attention(const KernelWriter& writer, const Attention& attention);

struct AttentionGrad;
struct AttentionGradForms {
  AttentionForm dq, dkv;  ///< of the same kind
};
AttentionGradForms choose_attention_grad(const KernelWriter& writer, const AttentionGrad& attention);

/// The forms that are worth measuring for attention of this shape.
std::vector<AttentionForm> attention_candidates(const Target& target, const AttentionShape& shape);

}  // namespace jerboa::wgsl
