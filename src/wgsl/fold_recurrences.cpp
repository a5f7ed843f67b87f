#include "wgsl/fold_recurrences.h"

#include <algorithm>

#include "lower/index.h"
#include "wgsl/attention.h"
#include "wgsl/body.h"
#include "wgsl/computed_rows.h"
#include "wgsl/finishing.h"
#include "wgsl/linear_attention.h"
#include "wgsl/product/problem.h"
#include "wgsl/product/quantised.h"

namespace jerboa::wgsl {
namespace {

using detail::index;

bool is_whole(const KernelSpec& kernel, Op op) { return kernel.kind == KernelSpec::Kind::whole && kernel.op == op; }

class RecurrenceFolder {
 public:
  RecurrenceFolder(const Program& program, const Target& target, PartUses& uses)
      : program_(program), target_(target), uses_(uses) {}

  void run() {
    for_each_left([&](std::size_t part) { fold_follower(part); });
    for_each_left([&](std::size_t part) { fold_sources(part); });
    for_each_left([&](std::size_t part) { fold_into_product(part); });
  }

 private:
  template <class F>
  void for_each_left(F fold) {
    for (std::size_t i = 0; i < uses_.count(); ++i)
      if (!uses_.is_gone(i)) fold(i);
  }

  const KernelSpec& kernel_of(std::size_t part) const { return uses_.kernel_of(part); }

  bool is_steps(const KernelSpec& kernel) const {
    return is_whole(kernel, Op::linear_attention) &&
           suits_linear_attention_steps(target_, LinearAttention(kernel, true));
  }

  // Small operands may share a binding, but not many of them.
  bool fits(const FoldedPart& part) const {
    int bound = 0;
    for (int memory = 0; memory < static_cast<int>(part.buffers.size()); ++memory)
      bound += static_cast<int>(part.folded.needs_buffer(memory));
    return bound <= target_.max_bindings;
  }

  // The result that a part stores element by element, so that another loop can process the elements; null: none.
  const TensorAccess* stored_elements(std::size_t part) const {
    const KernelSpec& kernel = kernel_of(part);
    if (is_whole(kernel, Op::causal_conv1d) || is_steps(kernel)) return &kernel.results[1];
    if (!is_whole(kernel, Op::attention)) return nullptr;
    const Attention attention(kernel, 3, std::get<AttentionAttrs>(kernel.attrs));
    if (attention.queries().upper_bound() == 0) return nullptr;
    const KernelWriter writer(kernel, target_, memories_of(program_, uses_.at(part).buffers));
    const AttentionForm::Kind kind = choose_attention(writer, attention).kind;
    return kind == AttentionForm::Kind::stream || kind == AttentionForm::Kind::decode ? kernel.results.data() : nullptr;
  }

  // Folds the loop that is the only reader of a part's results, and reads them element by element or, for linear
  // attention of few tokens, row by row.
  void fold_follower(std::size_t part) {
    const TensorAccess* stored = stored_elements(part);
    if (stored == nullptr) return;
    const KernelSpec& kernel = kernel_of(part);
    const TensorAccess& y = *stored;
    const int result = uses_.at(part).buffers[index(y.binding)];
    if (!uses_.is_internal(result)) return;
    const std::vector<std::size_t> readers = uses_.readers_of(part, result);
    if (readers.size() != 1 || !uses_.at(readers[0]).folded.empty()) return;
    const FoldedPart& follower = uses_.at(readers[0]);
    const KernelSpec& loop = kernel_of(readers[0]);
    const auto binding = std::find(follower.buffers.begin(), follower.buffers.end(), result);
    const int read = static_cast<int>(binding - follower.buffers.begin());
    if (!takes_elements(loop, read) || !(element_count(loop.domain) == element_count(y.shape)) ||
        !uses_.can_run_earlier(readers[0], part, result))
      return;
    if (loop.row_axes > 0 && !takes_rows(kernel, loop)) return;
    // The result stored in place of y has memory of its own; y itself has none.
    const bool in_place = uses_.written_buffers(readers[0]).contains(result);
    auto [with, numbers] = join_memories(uses_.at(part), follower, in_place ? std::set{read} : std::set<int>());
    KernelSpec renumbered_loop = renumbered(loop, numbers);
    for (Load& load : renumbered_loop.loads)
      if (load.binding == numbers[index(read)]) load.binding = y.binding;
    with.folded.finished.emplace(y.binding, Finishing{std::move(renumbered_loop)});
    if (!fits(with)) return;
    uses_.drop(readers[0]);
    uses_.replace(part, std::move(with));
  }

  bool takes_rows(const KernelSpec& kernel, const KernelSpec& loop) const {
    if (!is_steps(kernel) || kernel.results[1].dtype != DType::f32) return false;
    const LinearAttention attention(kernel, true);
    return suits_rows_of_linear_attention_steps(target_, attention) && sums_rows(loop, attention.value_size) &&
           std::all_of(loop.stores.begin(), loop.stores.end(),
                       [&](const Store& store) { return is_row_major(loop.domain, store.map); });
  }

  // Whether all sums of a loop are over rows of this length, and none depends on another.
  static bool sums_rows(const KernelSpec& loop, const Dim& length) {
    if (loop.row_axes != 1 || !(loop.domain.back() == length)) return false;
    std::vector<bool> on_sums;
    for (const Instruction& instruction : loop.body) {
      bool any = false;
      for (const int operand : {instruction.a, instruction.b, instruction.c})
        any = any || (operand >= 0 && on_sums[index(operand)]);
      if (instruction.kind == Instruction::Kind::load)
        if (const int from = loop.loads[index(instruction.index)].indirect; from >= 0) any = on_sums[index(from)];
      if (instruction.kind == Instruction::Kind::reduce) {
        if (any || instruction.op != Op::sum || instruction.dtype != DType::f32) return false;
        any = true;
      }
      on_sums.push_back(any);
    }
    return true;
  }

  // Linear attention of few tokens computes operands that no other part reads: gates, scaled values, norms.
  void fold_sources(std::size_t part) {
    if (!is_steps(kernel_of(part))) return;
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t memory = 0; memory < uses_.at(part).buffers.size() && !changed; ++memory)
        changed = fold_source(part, static_cast<int>(memory));
    }
  }

  bool fold_source(std::size_t part, int memory) {
    const FoldedKernels& folded = uses_.at(part).folded;
    if (folded.computed.contains(memory) || folded.finished.contains(memory)) return false;
    const int buffer = uses_.at(part).buffers[index(memory)];
    if (!uses_.reads(part, buffer)) return false;
    const auto source = uses_.last_writer(buffer, part);
    if (!source || !uses_.at(*source).folded.empty() || !uses_.can_run_later(*source, part)) return false;
    const KernelSpec& loop = kernel_of(*source);
    if (loop.kind != KernelSpec::Kind::loop || !gives_elements(loop)) return false;
    for (const int result : uses_.written_buffers(*source))
      if (!uses_.is_internal(result) || uses_.reads(*source, result) ||
          uses_.readers_of(*source, result) != std::vector{part} || uses_.written_buffers(part).contains(result))
        return false;
    auto [with, numbers] = join_memories(uses_.at(part), uses_.at(*source));
    const KernelSpec renumbered_loop = renumbered(loop, numbers);
    for (const Store& store : renumbered_loop.stores) {
      KernelSpec single = renumbered_loop;
      single.stores = {store};
      if (!is_read_by_elements(part, store.binding, loop)) return false;
      with.folded.computed.emplace(store.binding, with_rounded_result(std::move(single)));
    }
    if (!fits(with)) return false;
    uses_.drop(*source);
    uses_.replace(part, std::move(with));
    return true;
  }

  static bool gives_elements(const KernelSpec& loop) {
    return std::all_of(loop.stores.begin(), loop.stores.end(), [&](const Store& store) {
      return is_float(store.dtype) && is_row_major(loop.domain, store.map);
    });
  }

  // Rows with sums are computed only for queries and keys.
  bool is_read_by_elements(std::size_t part, int memory, const KernelSpec& loop) const {
    if (loop.row_axes == 0) return true;
    const LinearAttention attention(kernel_of(part), true);
    const auto is_other = [&](const TensorAccess& operand) {
      return operand.binding == memory &&
             ((&operand != &attention.q && &operand != &attention.k) || !has_rows_of(operand, attention.key_size));
    };
    const std::vector<TensorAccess>& operands = kernel_of(part).operands;
    if (attention.q.binding == attention.k.binding || std::any_of(operands.begin(), operands.end(), is_other))
      return false;
    for (const auto& [key, computed] : uses_.at(part).folded.computed)
      if (loads(computed, memory)) return false;
    for (const auto& [key, finishing] : uses_.at(part).folded.finished)
      if (loads(finishing.kernel, memory)) return false;
    return sums_rows(loop, attention.key_size);
  }

  static bool loads(const KernelSpec& kernel, int memory) {
    return std::any_of(kernel.loads.begin(), kernel.loads.end(),
                       [&](const Load& load) { return load.binding == memory; });
  }

  // A convolution of one token per sequence needs only one element of the product that gives its input.
  void fold_into_product(std::size_t part) {
    const KernelSpec& convolution = kernel_of(part);
    if (!is_whole(convolution, Op::causal_conv1d)) return;
    const FoldedPart& convolution_part = uses_.at(part);
    const int x = convolution_part.buffers[index(convolution.operands[1].binding)];
    const auto source = uses_.last_writer(x, part);
    if (!source || uses_.only_result(*source) != x || reads_input_elsewhere(convolution_part, convolution)) return;
    const KernelSpec& product = kernel_of(*source);
    if (product.kind != KernelSpec::Kind::matmul || !uses_.at(*source).folded.finished.empty() ||
        product.stores.size() != 1 || !is_row_major(product.domain, product.stores.front().map) ||
        !convolves_elements(convolution, product.domain) || !finishes_elements(*source) ||
        !uses_.can_run_earlier(part, *source, x))
      return;
    auto [with, numbers] = join_memories(uses_.at(*source), convolution_part);
    const int given = product.stores.front().binding;
    const bool stores = uses_.readers_of(*source, x) != std::vector{part};
    if (stores) with.key += " stored";
    auto& finished = with.folded.finished;
    finished.emplace(given, Finishing{renumbered(convolution, numbers), stores});
    for (const auto& [memory, finishing] : convolution_part.folded.finished)
      finished.emplace(numbers[index(memory)], Finishing{renumbered(finishing.kernel, numbers), finishing.stores});
    if (!fits(with)) return;
    with.label += ", " + convolution_part.label;
    uses_.drop(part);
    uses_.replace(*source, std::move(with));
  }

  // Whether a convolution reads its input as another operand too, or the loop that processes its results reads it. A
  // product that finishes its elements one by one may not have stored the input, or not yet.
  static bool reads_input_elsewhere(const FoldedPart& part, const KernelSpec& convolution) {
    constexpr std::size_t input = 1;
    const int x = part.buffers[index(convolution.operands[input].binding)];
    const auto is_input = [&](int memory) { return memory >= 0 && part.buffers[index(memory)] == x; };
    for (std::size_t i = 0; i < convolution.operands.size(); ++i)
      if (i != input && is_input(convolution.operands[i].binding)) return true;
    for (const auto& [memory, finishing] : part.folded.finished)
      for (const Load& load : finishing.kernel.loads)
        if (is_input(load.binding)) return true;
    return false;
  }

  // Whether each result of a product is stored separately.
  bool finishes_elements(std::size_t part) const {
    const KernelWriter writer(kernel_of(part), target_, memories_of(program_, uses_.at(part).buffers));
    const MatmulProblem problem(writer);
    return choose_quantised(writer, problem) || choose_form(target_, problem).kind == MatmulForm::Kind::vectors;
  }

  const Program& program_;
  const Target& target_;
  PartUses& uses_;
};

}  // namespace

void fold_recurrences(const Program& program, const Target& target, PartUses& uses) {
  RecurrenceFolder(program, target, uses).run();
}

}  // namespace jerboa::wgsl
