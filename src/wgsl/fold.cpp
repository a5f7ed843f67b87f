#include "wgsl/fold.h"

#include <algorithm>
#include <set>

#include "lower/index.h"
#include "wgsl/attention_stream.h"
#include "wgsl/body.h"
#include "wgsl/computed_rows.h"
#include "wgsl/fold_recurrences.h"
#include "wgsl/part_uses.h"
#include "wgsl/product/problem.h"
#include "wgsl/product/quantised.h"
#include "wgsl/product/scaled_rows.h"

namespace jerboa::wgsl {
namespace {

using detail::index;

class Folder {
 public:
  Folder(const Program& program, const Target& target, PartUses& uses)
      : program_(program), target_(target), uses_(uses) {}

  void run() {
    // Twice, because a part that is gone no longer overwrites what another reads.
    for (int turn = 0; turn < 2; ++turn)
      for (std::size_t i = 0; i < uses_.count(); ++i)
        if (!uses_.is_gone(i)) fold(i);
    for (std::size_t i = 0; i < uses_.count(); ++i)
      if (!uses_.is_gone(i)) fold_into_attention(i);
  }

 private:
  const KernelSpec& kernel_of(std::size_t part) const { return uses_.kernel_of(part); }

  // The memories of a part that hold its result.
  std::set<int> memories_of_result(std::size_t part, int result) const {
    std::set<int> memories;
    const std::vector<int>& buffers = uses_.at(part).buffers;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i] == result) memories.insert(static_cast<int>(i));
    return memories;
  }

  void fold(std::size_t part) {
    const int result = uses_.only_result(part);
    if (result < 0) return;
    const bool in_place = uses_.reads(part, result);
    const std::vector<std::size_t> readers = uses_.readers_of(part, result);
    if (readers.empty()) return;
    const KernelSpec& kernel = kernel_of(part);
    if (in_place && kernel.kind != KernelSpec::Kind::loop) return;
    // Memory that the part reads in place of its result stays where it is; the result itself is never stored.
    const std::set<int> separate = in_place ? memories_of_result(part, result) : std::set<int>();
    std::vector<std::pair<std::size_t, FoldedPart>> changed;
    for (const std::size_t reader : readers) {
      if (!uses_.can_run_later(part, reader)) return;
      auto [with, numbers] = join_memories(uses_.at(reader), uses_.at(part), separate);
      if (with.buffers.size() > index(target_.max_bindings)) return;
      const KernelSpec folded = renumbered(kernel, numbers);
      const bool folds = kernel.kind == KernelSpec::Kind::matmul ? fold_companion(part, reader, result, folded, with)
                         : kernel.row_axes > 0                   ? fold_scaled_rows(reader, result, folded, with)
                                                                 : fold_computed(reader, result, folded, with);
      if (!folds) return;
      changed.emplace_back(reader, std::move(with));
    }
    uses_.drop(part);
    for (auto& [reader, with] : changed) uses_.replace(reader, std::move(with));
  }

  // Folds a norm whose rows are multiplied by columns of weights.
  bool fold_scaled_rows(std::size_t reader, int result, const KernelSpec& rows, FoldedPart& with) const {
    const KernelSpec& kernel = kernel_of(reader);
    if (kernel.kind != KernelSpec::Kind::matmul || with.folded.scaled_rows) return false;
    const KernelWriter writer(kernel, target_, memories_of(program_, uses_.at(reader).buffers));
    const MatmulProblem problem(writer);
    // With many columns, the additional reads for each of them cost more than a dispatch.
    constexpr std::int64_t most_columns = 1 << 15;
    if (problem.columns.upper_bound() > most_columns ||
        (!choose_quantised(writer, problem) && choose_form(target_, problem).kind != MatmulForm::Kind::vectors))
      return false;
    const TensorAccess& a = *problem.a;
    const bool reads_elsewhere = with.buffers[index(problem.b->binding)] == result ||
                                 std::any_of(kernel.loads.begin(), kernel.loads.end(), [&](const Load& load) {
                                   return with.buffers[index(load.binding)] == result;
                                 });
    if (with.buffers[index(a.binding)] != result || reads_elsewhere || !a.prologue.empty() || !problem.batch.empty() ||
        !(a.offset == Dim(0)) || !(problem.rows == Dim(1) || problem.a_row == problem.inner) ||
        !ScaledRows::is_scaled_rows(rows, problem.rows, problem.inner))
      return false;
    with.folded.scaled_rows = rows;
    return true;
  }

  // Folds a product whose results another one's epilogue reads: the gate of a gated MLP.
  bool fold_companion(std::size_t part, std::size_t reader, int result, const KernelSpec& companion,
                      FoldedPart& with) const {
    const KernelSpec& kernel = kernel_of(reader);
    // Both may be preceded by the same norm.
    const FoldedKernels& before = uses_.at(part).folded;
    if (before.companion || before.scaled_rows.has_value() != with.folded.scaled_rows.has_value()) return false;
    if (kernel.kind != KernelSpec::Kind::matmul || with.folded.companion || kernel.domain != companion.domain ||
        companion.stores.size() != 1 || companion.stores.front().dtype != DType::f32 ||
        !is_row_major(companion.domain, companion.stores.front().map))
      return false;
    const KernelWriter writer(kernel_of(part), target_, memories_of(program_, uses_.at(part).buffers)),
        other(kernel, target_, memories_of(program_, uses_.at(reader).buffers));
    const MatmulProblem first(writer), second(other);
    const auto is_vectors = [&](const MatmulProblem& problem) {
      return choose_form(target_, problem).kind == MatmulForm::Kind::vectors;
    };
    const bool quantised = choose_quantised(writer, first) && choose_quantised(other, second) &&
                           kernel.operands.size() == companion.operands.size();
    if (!quantised && !(is_vectors(first) && is_vectors(second))) return false;
    const TensorAccess &a = companion.operands[0], &same = kernel.operands[0];
    const bool share_operand = a.binding == same.binding && a.offset == same.offset && a.strides == same.strides &&
                               a.prologue.empty() && same.prologue.empty() && first.batch.empty() &&
                               second.batch.empty() && first.b->dtype == second.b->dtype;
    if (!share_operand) return false;
    for (const TensorAccess& operand : kernel.operands)
      if (operand.binding >= 0 && with.buffers[index(operand.binding)] == result) return false;
    for (const Load& load : kernel.loads)
      if (with.buffers[index(load.binding)] == result &&
          (!load.masks.empty() || load.indirect >= 0 || !is_row_major(kernel.domain, load.map)))
        return false;
    with.folded.companion = companion;
    return true;
  }

  // Folds an element-wise loop whose values are appended to a cache.
  bool fold_computed(std::size_t reader, int result, const KernelSpec& loop, FoldedPart& with) const {
    const KernelSpec& kernel = kernel_of(reader);
    if (loop.kind != KernelSpec::Kind::loop || kernel.kind != KernelSpec::Kind::whole ||
        kernel.op != Op::cache_append || loop.stores.size() != 1 || !is_row_major(loop.domain, loop.stores.front().map))
      return false;
    constexpr std::size_t values = 1;
    // For values that are rounded to 8 bits, the whole group that shares a scale reads each of them.
    if (kernel.operands[values].dtype != kernel.results[0].dtype) return false;
    // Whatever is computed in place of these values reads the same buffer.
    if (with.folded.computed.contains(kernel.operands[values].binding)) return false;
    for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
      const int binding = kernel.operands[i].binding;
      if (binding >= 0 && (with.buffers[index(binding)] == result) != (i == values)) return false;
    }
    with.folded.computed.emplace(kernel.operands[values].binding, with_rounded_result(loop));
    return true;
  }

  // A part with attention, and the kernels that it is about to compute itself.
  struct Absorbing {
    std::size_t part = 0;
    FoldedPart with;
    std::vector<std::size_t> absorbed;

    // The numbers of another part's memories, after adding those that are missing.
    std::vector<int> add_memories(const FoldedPart& other) {
      JoinedPart joined = join_memories(with, other);
      with = std::move(joined.part);
      return std::move(joined.numbers);
    }
  };

  // Attention of one query per head computes its queries itself, and appends keys and values to their caches.
  void fold_into_attention(std::size_t part) {
    const KernelSpec& kernel = kernel_of(part);
    if (kernel.kind != KernelSpec::Kind::whole || kernel.op != Op::attention) return;
    const KernelWriter writer(kernel, target_, memories_of(program_, uses_.at(part).buffers));
    const Attention attention(kernel, 3, std::get<AttentionAttrs>(kernel.attrs));
    if (attention.queries().upper_bound() == 0) return;
    const AttentionForm form = choose_attention(writer, attention);
    if (form.kind != AttentionForm::Kind::stream) return;
    Absorbing with_queries{part, uses_.at(part), {}};
    if (absorb_loop(with_queries, *attention.q, part, attention.size)) take_over(with_queries);
    if (!AttentionStream::can_append(attention, form)) return;
    Absorbing with_appends{part, uses_.at(part), {}};
    if (absorb_append(with_appends, attention, *attention.k) && absorb_append(with_appends, attention, *attention.v))
      take_over(with_appends);
  }

  // Absorbs the loop whose result only the reader reads, as an operand with rows of this length.
  bool absorb_loop(Absorbing& absorbing, const TensorAccess& operand, std::size_t reader, const Dim& length) const {
    if (!has_rows_of(operand, length)) return false;
    const int result = absorbing.with.buffers[index(operand.binding)];
    const std::optional<std::size_t> source = uses_.last_writer(result, reader);
    if (!source || uses_.only_result(*source) != result || uses_.reads(*source, result) ||
        uses_.readers_of(*source, result) != std::vector{reader} || !uses_.at(*source).folded.empty() ||
        !is_computed_by_fours(kernel_of(*source), length) || !uses_.can_run_later(*source, absorbing.part))
      return false;
    const std::vector<int> numbers = absorbing.add_memories(uses_.at(*source));
    absorbing.with.folded.computed.emplace(operand.binding,
                                           with_rounded_result(renumbered(kernel_of(*source), numbers)));
    absorbing.absorbed.push_back(*source);
    return true;
  }

  // Whether attention reads the whole cache: if it read a part, it would append the newest row to that part alone.
  static bool is_all_of(const TensorAccess& operand, const TensorAccess& cache) {
    return operand.binding == cache.binding && operand.dtype == cache.dtype && operand.shape == cache.shape &&
           operand.offset == cache.offset && operand.strides == cache.strides;
  }

  // Absorbs the append to a cache just before attention reads it, for one position of each sequence.
  bool absorb_append(Absorbing& absorbing, const Attention& attention, const TensorAccess& cache) const {
    const int buffer = absorbing.with.buffers[index(cache.binding)];
    const std::optional<std::size_t> source = uses_.last_writer(buffer, absorbing.part);
    if (!source) return false;
    // One cache may hold both the keys and the values.
    if (std::find(absorbing.absorbed.begin(), absorbing.absorbed.end(), *source) != absorbing.absorbed.end())
      return is_all_of(cache, absorbing.with.folded.appends.front().results[0]);
    const FoldedPart& append = uses_.at(*source);
    const KernelSpec& kernel = kernel_of(*source);
    if (kernel.kind != KernelSpec::Kind::whole || kernel.op != Op::cache_append ||
        kernel.operands[0].binding != kernel.results[0].binding || !(kernel.operands[1].shape[2] == Dim(1)) ||
        uses_.next_reader(buffer, *source) != absorbing.part || !uses_.can_run_later(*source, absorbing.part))
      return false;
    const std::vector<int> numbers = absorbing.add_memories(append);
    const KernelSpec appended = renumbered(kernel, numbers);
    const TensorAccess &values = appended.operands[1], &positions = appended.operands[2], &table = appended.operands[3];
    const int attended = attention.table == nullptr ? -1 : attention.table->binding;
    std::vector<KernelSpec>& appends = absorbing.with.folded.appends;
    if (!is_all_of(cache, appended.results[0]) || table.binding != attended ||
        (!appends.empty() &&
         (appends.front().operands[2].binding != positions.binding ||
          std::get<CacheAppendAttrs>(appends.front().attrs).ring != std::get<CacheAppendAttrs>(appended.attrs).ring)))
      return false;
    if (append.folded.computed.empty()) {
      absorb_loop(absorbing, values, *source, attention.size);
    } else {
      const KernelSpec& computed = append.folded.computed.at(kernel.operands[1].binding);
      if (!is_computed_by_fours(computed, attention.size) || !has_rows_of(values, attention.size)) return false;
      absorbing.with.folded.computed.emplace(values.binding, renumbered(computed, numbers));
    }
    appends.push_back(appended);
    absorbing.absorbed.push_back(*source);
    return true;
  }

  void take_over(Absorbing& absorbing) {
    constexpr std::size_t workspaces = 2;
    const FoldedKernels& folded = absorbing.with.folded;
    if (absorbing.with.buffers.size() - folded.computed.size() + workspaces > index(target_.max_bindings)) return;
    for (const std::size_t gone : absorbing.absorbed) uses_.drop(gone);
    uses_.replace(absorbing.part, std::move(absorbing.with));
  }

  const Program& program_;
  const Target& target_;
  PartUses& uses_;
};

}  // namespace

std::vector<ShaderMemory> memories_of(const Program& program, const std::vector<int>& buffers) {
  std::vector<ShaderMemory> memories;
  for (const int number : buffers) {
    const Buffer& buffer = program.buffers[index(number)];
    memories.push_back({buffer.dtype, buffer.bytes, buffer.name});
    memories.back().has_fixed_size = buffer.elements.is_constant();
  }
  return memories;
}

std::vector<FoldedPart> fold_kernels(const Program& program, const Target& target) {
  PartUses uses(program);
  if (target.fuse) {
    Folder(program, target, uses).run();
    fold_recurrences(program, target, uses);
  }
  return uses.take();
}

}  // namespace jerboa::wgsl
