#pragma once

#include "wgsl/attention_parts.h"

namespace jerboa::wgsl {

/// Attention for few queries on many keys, for heads of a power of two of features. The features of a key lie in
/// neighbouring threads, four in each, which hold the same features of all queries that share the key head and of their
/// results: keys and values are read once, several at a time and straight into registers, and the loop over them has no
/// barriers. The keys are cut into so many parts that the device is busy.
class AttentionStream {
 public:
  /// Whether this form is the best for these sizes.
  static bool suits(const Target& target, const Attention& attention);

  AttentionStream(KernelWriter& writer, const Attention& attention);
  void write();

 private:
  static constexpr int threads = 128, most_queries = 8;

  void write_lane_sum();
  void write_queries();
  void write_keys();
  void write_query(int query);
  void write_results();
  std::string lane_sum(const std::string& value) const;

  KernelWriter& writer_;
  const Attention& attention_;
  int queries_;        // of a workgroup
  int lanes_, slots_;  // threads that share a key, and keys at a time
  int at_a_time_;      // keys that a thread reads before it uses the first
  Dim blocks_;         // workgroups for the queries of a key head
  AttentionParts parts_;
  Shader shader_;
};

}  // namespace jerboa::wgsl
