#pragma once

#include <map>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "lower/fuse.h"

namespace jerboa::detail {

/// Writes the body of one kernel: instructions for the values of a group, loads of other groups' results, stores.
class KernelBuilder {
 public:
  /// `buffer_of` gives the buffer of each tensor that is in memory.
  KernelBuilder(const Graph& graph, const Fusion& fusion, const std::vector<int>& buffer_of, int group);

  /// The kernel, and the buffers of its bindings.
  KernelSpec build();
  const std::vector<int>& buffers() const { return buffers_; }

 private:
  const Node& node_at(NodeId id) const { return graph_.nodes[static_cast<std::size_t>(id)]; }
  int binding_of(TensorId root);
  int add(Instruction instruction);
  int constant(double value, DType dtype);
  int dim_constant(const Dim& value);
  int position(const AffineIndex& at);
  int compute(Op op, DType dtype, int a, int b = -1, int c = -1);
  int load(TensorId tensor, const Access& access);
  int read(TensorId tensor, const Access& access);
  int evaluate(const Node& node, const Access& access);
  int evaluate_concat(const Node& node, const Access& access);
  int evaluate_pad(const Node& node, const Access& access);
  int evaluate_random(const Node& node, const Access& access);
  int evaluate_lookup(const Node& node, const Access& access, std::size_t axis, const Access& index_access);
  TensorAccess whole_tensor(TensorId tensor);
  TensorAccess product_operand(TensorId tensor);
  void store(TensorId tensor, int value, const Access& domain_of_axis);
  void build_loop();
  void build_reduce();
  void build_matmul();
  void refuse_parts_of_quantised(const Node& node, std::size_t weight) const;
  void build_whole();

  const Graph& graph_;
  const Fusion& fusion_;
  const std::vector<int>& buffer_of_;
  int group_number_;
  const Group& group_;
  KernelSpec kernel_;
  std::vector<int> buffers_;
  std::map<TensorId, int> values_;    // the instructions of this group's tensors
  std::map<std::string, int> known_;  // instructions by their text
  std::vector<Mask> masks_;           // in force for loads
  std::vector<int> domain_axis_;      // for a reduce: the domain's axis for each axis of the operand
};

}  // namespace jerboa::detail
