#pragma once

#include "wgsl/attention_parts.h"

namespace jerboa::wgsl {

/// Attention for few queries on many keys. A workgroup processes some queries that share a key head, so that each key
/// and value is read once for all of them, and a part of the keys.
class AttentionDecode {
 public:
  /// Whether this form is the best for these sizes.
  static bool suits(const Target& target, const Attention& attention);
  /// The form that is chosen without measuring.
  static AttentionForm form_for(const Attention& attention);

  AttentionDecode(KernelWriter& writer, const Attention& attention, const AttentionForm& form);
  void write();

 private:
  static constexpr int threads = 128, lanes_per_key = 4, keys_at_a_time = threads / lanes_per_key, pass = 128;

  void write_queries();
  void write_scores();
  void write_weights();
  void write_sums();
  void write_results();
  void write_row_tree(const std::string& name, bool is_sum);

  KernelWriter& writer_;
  const Attention& attention_;
  int queries_;    // of a workgroup, a power of two
  int row_lanes_;  // threads per query when they process its scores
  Dim blocks_;     // workgroups for the queries of a key head
  AttentionParts parts_;
  Shader shader_;
};

}  // namespace jerboa::wgsl
