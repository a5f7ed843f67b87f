#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "wgsl/attention_parts.h"
#include "wgsl/computed_rows.h"

namespace jerboa::wgsl {

/// Attention for few queries on many keys, for heads whose size is a power of two. The features of a key are spread
/// over adjacent threads, four or eight in each, which hold the same features of all queries that share the key head,
/// and of their results: keys and values are read once, several at a time and straight into registers, and the loop
/// over them needs no barriers where threads exchange values as a subgroup. While the partial products of all these
/// keys and queries are added up, each thread is left with one of them or a few, all of one query, and computes the
/// weights of those alone. The keys are split into enough parts to keep the device busy.
///
/// Queries, and the keys and values of this step, may be computed here (FoldedKernels). The workgroup whose part
/// contains the new key then writes it to the caches but uses its own copy, so that no dispatch is needed beforehand.
class AttentionStream {
 public:
  /// Whether this form is the best for these sizes.
  static bool suits(const Target& target, const Attention& attention);
  /// Whether workgroups can append the keys and values of their queries' step: only one workgroup may use each key.
  static bool can_append(const Attention& attention, const AttentionForm& form);
  /// The form that is chosen without measuring.
  static AttentionForm form_for(const KernelWriter& writer, const Attention& attention);

  AttentionStream(KernelWriter& writer, const Attention& attention, const AttentionForm& form);
  void write();

 private:
  static int threads_for(const Target& target) { return target.fixed_threads > 0 ? target.fixed_threads : 128; }
  static int queries_for(const Attention& attention);
  static int vectors_for(const Attention& attention) { return attention.size.value() > 128 ? 2 : 1; }

  void write_take();
  void write_loads();
  void write_queries();
  void write_appends();
  ComputedFours computed_query(const KernelSpec& loop, int number);
  std::vector<std::string> appended(const KernelSpec& append);
  void write_thread_query();
  void write_range();
  void write_keys();
  std::array<std::pair<const char*, const TensorAccess*>, 2> appended_operands() const;
  std::string rounded_four(const std::string& four, DType dtype);
  void write_newest_key();
  void write_products();
  void write_weights();
  void write_sums();
  void write_results();
  void write_top_of(const std::string& query);
  void write_slot_sums(int query, int place);
  void write_rows(int first, int count);
  void write_total();
  std::string take(const std::string& value, const std::string& from) const;
  /// The sum of a value over all threads that share a key.
  std::string sum_of_lanes(const std::string& value);
  /// Sums, or takes the maximum of, a value over all threads that compute weights of the same query.
  void write_query_reduction(const std::string& name, bool is_sum);
  /// The names of a thread's vectors of a query, key, value or sum, and the first feature of each.
  std::string vector_of(const std::string& name, int vector) const;
  std::string feature_of(int vector) const;
  std::vector<std::string> places_of(const TensorAccess& tensor, std::vector<std::string> indices);
  int products() const { return queries_ * at_a_time_; }
  int thread_products() const { return std::max(1, products() / lanes_); }
  int query_lanes() const { return lanes_ / queries_; }

  KernelWriter& writer_;
  const Attention& attention_;
  int threads_;
  int queries_;        // per workgroup, a power of two
  int vectors_;        // of four features per thread
  int lanes_, slots_;  // threads that share a key, and keys at a time
  int at_a_time_;      // keys that a thread reads before it uses the first
  Dim blocks_;         // workgroups for the queries of a key head
  AttentionParts parts_;
  Shader shader_;
  std::vector<ComputedFours> computed_queries_;
  std::vector<std::optional<ComputedFours>> computed_appends_;  // by append; none if it is only loaded
  std::vector<std::vector<std::string>> loaded_appends_;        // by append
};

}  // namespace jerboa::wgsl
