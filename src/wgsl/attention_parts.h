#pragma once

#include <string>

#include "wgsl/attention.h"

namespace jerboa::wgsl {

/// The number of parts to split the keys of each of `blocks` work items into, so that about `wanted` items result and
/// none has fewer than `least_keys` keys.
std::int64_t parts_of(const Dim& blocks, std::int64_t wanted, const Dim& keys, std::int64_t least_keys);

/// Where attention's results go: straight to out and lse, or, if several workgroups share a query's keys, to workspace,
/// from which a second shader combines them.
class AttentionParts {
 public:
  AttentionParts(KernelWriter& writer, const Attention& attention, std::int64_t parts);

  std::int64_t count() const { return parts_; }
  /// WGSL expressions of a query's greatest score and of its sum before any key: the sink's, which the first part
  /// counts.
  std::string first_top(Shader& shader, const std::string& head, const std::string& part) const;
  std::string first_total(const std::string& part) const;
  /// Splits the keys [from, to) into the parts; declares the range of this one as `first` and `end`.
  void write_range(Shader& shader, const std::string& from, const std::string& to, const std::string& part) const;

  /// Stores one feature of Σ p v, and once per query its greatest score and its sum.
  void store_sum(Shader& shader, const std::string& batch, const std::string& head, const std::string& time,
                 const std::string& part, const std::string& feature, const std::string& sum,
                 const std::string& total) const;
  void store_row(Shader& shader, const std::string& batch, const std::string& head, const std::string& time,
                 const std::string& part, const std::string& top, const std::string& total) const;
  /// Adds the second shader, if one is needed.
  void write_combine(KernelWriter& writer) const;

 private:
  AttentionParts(const AttentionParts& other, std::int64_t parts)
      : attention_(other.attention_), out_(other.out_), lse_(other.lse_), parts_(parts) {}
  /// Whether results are contiguous in the order of queries and features.
  bool is_in_order() const;
  std::string number(Shader& shader, const std::string& batch, const std::string& head, const std::string& time,
                     const std::string& part) const;

  const Attention& attention_;
  const TensorAccess &out_, &lse_;
  std::int64_t parts_;
  int sums_ = -1, rows_ = -1;  // workspace: [query, part, feature], and [query, part, 2] of top and total
};

}  // namespace jerboa::wgsl
