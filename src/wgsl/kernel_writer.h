#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/shader.h"

namespace jerboa::wgsl {

/// Kernels whose results only one other kernel reads, which computes them itself. Their bindings are memory numbers of
/// that kernel.
struct FoldedKernels {
  /// A loop whose result is the first operand of a product, and whose elements are products of a factor per element and
  /// one per row, as in an RMS norm.
  std::optional<KernelSpec> scaled_rows;
  /// A product of the same first operand, whose results the epilogue reads element by element.
  std::optional<KernelSpec> companion;
  /// By memory: loops that are evaluated where an element is read. Loops with sums over rows are allowed only for the
  /// queries, keys and values of attention_stream.h, and for the queries and keys of linear attention of few tokens.
  std::map<int, KernelSpec> computed;
  /// The values put into the caches of attention's keys and values before it reads them: cache_append kernels, in
  /// place.
  std::vector<KernelSpec> appends;

  /// By memory: what is done with elements instead of storing them. Sums over rows are allowed only for the results of
  /// linear attention of few tokens.
  std::map<int, Finishing> finished;

  bool empty() const { return !scaled_rows && !companion && computed.empty() && appends.empty() && finished.empty(); }
  /// Whether a memory's elements are in a buffer: not if they are only computed here, or only finished.
  bool needs_buffer(int memory) const {
    const auto found = finished.find(memory);
    return !computed.contains(memory) && (found == finished.end() || found->second.stores);
  }
};

/// A shader's share of its kernel's operations (lower/cost.h), as a fraction.
struct OperationShare {
  int part = 0, of = 1;
};
inline constexpr OperationShare all_operations{1, 1};

/// The output for one kernel: shaders that run one after another, and memory between them.
class KernelWriter {
 public:
  /// `memories`: one for each binding of the kernel.
  KernelWriter(const KernelSpec& kernel, const Target& target, std::vector<ShaderMemory> memories,
               bool memories_overlap = false, FoldedKernels folded = {})
      : kernel_(kernel),
        target_(target),
        memories_(std::move(memories)),
        memories_overlap_(memories_overlap),
        folded_(std::move(folded)) {}

  const KernelSpec& kernel() const { return kernel_; }
  const Target& target() const { return target_; }
  /// Whether two bindings alias the same memory: then they cannot both be read_write.
  bool memories_overlap() const { return memories_overlap_; }
  /// Scratch memory for intermediate results, sized for `elements` at the symbols' upper bounds. Its number is used
  /// like that of a binding.
  int workspace(DType dtype, const Dim& elements);
  /// Passes workspace between the phases of a dispatch, as other activations are.
  void pass_workspaces() { workspace_access_ = MemoryAccess::passed; }
  Shader shader(const std::string& name, int threads) const {
    return {target_, name, memories_, threads, &folded_.computed, &folded_.finished};
  }
  const FoldedKernels& folded() const { return folded_; }
  /// The threads of a workgroup that reduces rows or columns: as many as most products of the program have, so that
  /// they can share a dispatch.
  int row_threads() const { return row_threads_; }
  void set_row_threads(int threads) { row_threads_ = threads; }
  /// A shader without workgroups is skipped.
  void add(Shader shader, const Dim& workgroups, OperationShare operations = {});
  /// Adds a shader that accesses no element that the shader before it writes, so that both can run concurrently.
  void add_beside(Shader shader, const Dim& workgroups, OperationShare operations = {});

  struct Step {
    Shader::Finished shader;
    Dim workgroups;
    OperationShare operations;
    bool uses_f16 = false, uses_subgroups = false, uses_subgroup_matrices = false;
    bool beside_previous = false;
  };
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<ShaderMemory>& memories() const { return memories_; }

 private:
  const KernelSpec& kernel_;
  const Target& target_;
  std::vector<ShaderMemory> memories_;
  MemoryAccess workspace_access_ = MemoryAccess::bound;
  bool memories_overlap_;
  FoldedKernels folded_;
  int row_threads_ = 128;
  std::vector<Step> steps_;
};

/// count / size, rounded up.
inline Dim groups_of(const Dim& count, std::int64_t size) { return floor_divide(count + Dim(size - 1), size); }

void write_loop(KernelWriter& writer);
void write_reduce(KernelWriter& writer);
void write_matmul(KernelWriter& writer);
void write_whole(KernelWriter& writer);

}  // namespace jerboa::wgsl
