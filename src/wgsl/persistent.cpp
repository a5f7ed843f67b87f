#include "wgsl/persistent.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

#include "lower/index.h"
#include "wgsl/passed_words.h"
#include "wgsl/phase_source.h"
#include "wgsl/refusal.h"
#include "wgsl/storage_pools.h"
#include "wgsl/write_steps.h"

namespace jerboa::wgsl {
namespace {

using detail::index;

// Kernels that can be phases write every element of their results once, and nothing else. Appending to a cache that is
// an activation first copies all of it, and so would write words twice.
bool can_be_phase(const KernelSpec& kernel, const Dispatch::Part& part, const Program& program) {
  if (kernel.kind != KernelSpec::Kind::whole || kernel.op == Op::attention) return true;
  if (kernel.op != Op::cache_append) return false;
  const int cache = part.buffers[index(kernel.results[0].binding)];
  return program.buffers[index(cache)].where == Buffer::Where::storage;
}

class PersistentWriter {
 public:
  PersistentWriter(Program& program, const Target& target)
      : target_(target),
        threads_(target.persistent_threads),
        most_bindings_(target.max_bindings),
        program_(program),
        scratch_(program),
        pools_(program) {
    target_.fixed_threads = target_.max_invocations = threads_;
    target_.max_bindings = 1 << 20;
  }

  std::shared_ptr<PersistentDispatch> write() {
    check_kernels();
    steps_ = write_phases(scratch_, target_);
    if (steps_.empty()) throw Refusal{"the program has no steps"};
    find_phases();
    for (Phase& phase : phases_) find_text(phase);
    check_storage();
    pools_.make(placed_, written_, target_);
    words_.emplace(scratch_);
    add_table();
    find_readable();
    check_words();
    dispatch_.words = words_->count();
    dispatch_.phases = static_cast<int>(phases_.size());
    write_shader();
    return std::make_shared<PersistentDispatch>(std::move(dispatch_));
  }

 private:
  // A step, and the combinations of attention's parts that it does itself, by the buffer of its text that they fill.
  struct Phase {
    const WrittenStep* written = nullptr;
    std::map<int, const WrittenStep*> combined = {};
    std::size_t text = 0;
  };

  // Phases with the same text are the same phase of different layers.
  struct Text {
    const Phase* first = nullptr;
    std::vector<int> bindings = {};  // of the dispatch, by the text's buffer
    std::size_t first_size = 0;      // in vectors of the table
  };

  // Checked before anything is written, to save the work. The products of a token have one or two rows.
  void check_kernels() const {
    bool has_products = false;
    for (const Dispatch& dispatch : program_.cpu.dispatches)
      for (const Dispatch::Part& part : dispatch.parts) {
        const KernelSpec& kernel = program_.cpu.kernels[index(part.kernel)];
        if (!can_be_phase(kernel, part, program_)) throw Refusal{"an op cannot run as a phase"};
        if (kernel.kind != KernelSpec::Kind::matmul) continue;
        constexpr std::int64_t most_rows = 2;
        has_products = true;
        if (kernel.domain[kernel.domain.size() - 2].upper_bound() > most_rows)
          throw Refusal{"its products have many rows"};
      }
    if (!has_products) throw Refusal{"it has no products"};
  }

  void find_phases() {
    std::map<const WrittenStep*, std::pair<const WrittenStep*, int>> readers;  // of steps that are left out
    std::set<const WrittenStep*> combining;
    for (const WrittenStep& written : steps_)
      if (const auto reader = find_combining_reader(written); reader && combining.insert(reader->first).second)
        readers.emplace(&written, *reader);
    for (const WrittenStep& written : steps_) {
      if (readers.contains(&written)) continue;
      phases_.push_back({&written});
      for (const auto& [combination, reader] : readers)
        if (reader.first == &written) phases_.back().combined.emplace(reader.second, combination);
    }
  }

  // The only step that reads what this one combines, if it copies all of it to workgroup memory, and which of its
  // buffers that is.
  std::optional<std::pair<const WrittenStep*, int>> find_combining_reader(const WrittenStep& written) const {
    constexpr std::int64_t most_words = 32 << 10;  // read by each workgroup
    const std::optional<Combination>& combination = written.shader.text.combination;
    if (!combination || combination->queries * combination->parts * combination->size > most_words) return {};
    const auto buffer_of = [&](int binding) { return written.step.bindings[index(binding)].buffer; };
    if (is_used_after(written, buffer_of(combination->lse), nullptr)) return {};
    const int out = buffer_of(combination->out);
    for (const WrittenStep* step = &written + 1; step != steps_.data() + steps_.size(); ++step)
      for (std::size_t i = 0; i < step->step.bindings.size(); ++i) {
        const GpuStep::Binding& binding = step->step.bindings[i];
        if (root_of(scratch_, binding.buffer) != root_of(scratch_, out)) continue;
        if (step->step.shader < 0 || binding.buffer != out || binding.written || binding.offset != 0) return {};
        const ShaderText::Buffer& buffer = step->shader.text.buffers[i];
        if (buffer.staged != combination->queries * combination->size || buffer.is_read_elsewhere ||
            count_bindings(step->step, out) != 1 || is_used_after(written, out, step))
          return {};
        for (const int parts : {buffer_of(combination->sums), buffer_of(combination->rows)})
          if (is_written_between(written, *step, parts)) return {};
        return std::pair(step, static_cast<int>(i));
      }
    return {};
  }

  std::ptrdiff_t count_bindings(const GpuStep& step, int buffer) const {
    return std::count_if(step.bindings.begin(), step.bindings.end(), [&](const GpuStep::Binding& binding) {
      return root_of(scratch_, binding.buffer) == root_of(scratch_, buffer);
    });
  }

  bool is_written_between(const WrittenStep& from, const WrittenStep& to, int buffer) const {
    for (const WrittenStep* step = &from; step <= &to; ++step)
      for (const GpuStep::Binding& binding : step->step.bindings)
        if (binding.written && root_of(scratch_, binding.buffer) == root_of(scratch_, buffer)) return true;
    return false;
  }

  // Whether a later step other than `except`, or a host, uses a tensor that this step writes.
  bool is_used_after(const WrittenStep& written, int buffer, const WrittenStep* except) const {
    const int root = root_of(scratch_, buffer);
    for (const WrittenStep* step = &written + 1; step != steps_.data() + steps_.size(); ++step)
      for (const GpuStep::Binding& binding : step->step.bindings)
        if (step != except && root_of(scratch_, binding.buffer) == root) return true;
    return std::any_of(program_.outputs.begin(), program_.outputs.end(),
                       [&](const Readable& readable) { return root_of(scratch_, readable.buffer) == root; });
  }

  void find_text(Phase& phase) {
    const WrittenStep& written = *phase.written;
    if (written.step.shader < 0) throw Refusal{"it copies small operands into one buffer"};
    const ShaderText& text = written.shader.text;
    const int used = written.shader.source.threads;
    if (used != threads_ && (!has_independent_threads(text) || threads_ % used != 0))
      throw Refusal{fmt::format("{} has workgroups of {} threads", written.shader.source.name, used)};
    // WGSL's uniformity analysis cannot show that all threads read the same loop bound if private variables hold its
    // address.
    if (text.loops_over_data && waits_in_loops(text))
      throw Refusal{fmt::format("threads of {} wait in loops over data", written.shader.source.name)};
    std::string key = written.shader.source.source;
    for (const Dim& size : written.step.sizes) key += size.str() + ",";
    for (const ShaderText::Buffer& buffer : text.buffers) key += fmt::format("{};", buffer.staged);
    for (const auto& [buffer, step] : phase.combined) {
      const Combination& combination = *step->shader.text.combination;
      key += fmt::format("{}: {} of {} x {} {};", buffer, combination.parts, combination.queries, combination.size,
                         name(combination.dtype));
    }
    const auto [found, is_new] = numbers_.emplace(key, texts_.size());
    if (is_new) texts_.push_back({&phase, std::vector<int>(text.buffers.size(), -1), 0});
    phase.text = found->second;
    const WrittenStep& first = *texts_[found->second].first->written;
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      if (text.buffers[i].is_passed()) continue;
      const int buffer = written.step.bindings[i].buffer;
      if (program_.buffers[index(buffer)].within >= 0) throw Refusal{"its parameters are pooled already"};
      if (written.step.bindings[i].offset != 0) throw Refusal{"a parameter does not fit the bindings of a shader"};
      placed_.insert(buffer);
      if (written.step.bindings[i].written) written_.insert(buffer);
      pools_.unite(buffer, first.step.bindings[i].buffer);
    }
  }

  // No later phase may use storage that a phase writes: plain stores are visible only to the next dispatch.
  void check_storage() const {
    std::set<int> gone;
    for (const Phase& phase : phases_) {
      const WrittenStep& written = *phase.written;
      std::set<int> put;
      for (const GpuStep::Binding& binding : written.step.bindings) {
        if (gone.contains(binding.buffer))
          throw Refusal{fmt::format("{} uses {}, which an earlier phase writes", written.shader.source.name,
                                    scratch_.buffers[index(binding.buffer)].name)};
        if (binding.written && !is_passed(binding)) put.insert(binding.buffer);
      }
      gone.merge(put);
    }
  }
  bool is_passed(const GpuStep::Binding& binding) const {
    return scratch_.buffers[index(binding.buffer)].where == Buffer::Where::arena;
  }

  // The binding of the dispatch for an operand of a text.
  int binding_for(const GpuStep::Binding& binding, const std::string& element) {
    const int bound = pools_.place(binding.buffer).first;
    const bool is_written = pools_.is_written(bound);
    for (std::size_t i = 0; i < dispatch_.bindings.size(); ++i) {
      if (dispatch_.bindings[i].buffer != bound) continue;
      if (bindings_[i].element == element) return static_cast<int>(i);
      if (is_written) throw Refusal{"storage is written as a different type"};
    }
    dispatch_.bindings.push_back({bound, 0, program_.buffers[index(bound)].bytes, is_written});
    bindings_.push_back({element, is_written});
    return static_cast<int>(dispatch_.bindings.size()) - 1;
  }

  // The table has the row numbers first, then the sizes, then the rows (phase_source.h).
  void add_table() {
    constexpr std::int64_t most_polls = 2'000'000;    // a few seconds: any phase has ended by then
    constexpr std::int64_t most_word_polls = 20'000;  // a few milliseconds: any store has arrived by then
    std::vector<Dim>& table = dispatch_.table;
    table = {Dim(target_.persistent_workgroups), Dim(std::ssize(phases_)), Dim(most_polls), Dim(most_word_polls)};
    const std::size_t first_row = table.size();
    table.resize(first_row + phases_.size(), Dim(0));
    pad();
    for (Text& text : texts_) {
      text.first_size = table.size() / 4;
      const std::vector<Dim>& sizes = text.first->written->step.sizes;
      table.insert(table.end(), sizes.begin(), sizes.end());
      pad();
    }
    for (std::size_t i = 0; i < phases_.size(); ++i) {
      table[first_row + i] = Dim(std::ssize(table) / 4);
      add_row(phases_[i]);
    }
    // For every phase, and for a probe, the shader reads as many numbers as the longest row has.
    dispatch_.probe_row = static_cast<int>(table.size() / 4);
    std::size_t longest = 0;
    for (const Text& text : texts_)
      longest = std::max(longest, row_header + 2 * text.first->written->shader.text.buffers.size());
    table.resize(table.size() + (longest + 3) / 4 * 4, Dim(0));
    constexpr std::size_t most = (64 << 10) / sizeof(std::uint32_t);
    if (table.size() > most) throw Refusal{"it has too many phases"};
    constexpr int always = 2;
    if (std::ssize(dispatch_.bindings) + always > most_bindings_) throw Refusal{"it needs too many bindings"};
  }

  void add_row(const Phase& phase) {
    const WrittenStep& written = *phase.written;
    const std::size_t number = phase.text;
    std::vector<Dim>& table = dispatch_.table;
    const std::vector<ShaderText::Buffer>& buffers = written.shader.text.buffers;
    table.insert(table.end(), {Dim(static_cast<std::int64_t>(number)), written.step.workgroups});
    const std::size_t places = table.size();
    table.resize(places + 2 * buffers.size(), Dim(0));
    // Everything that is read is located before anything is written anew.
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const GpuStep::Binding& binding = written.step.bindings[i];
      if (const auto combined = phase.combined.find(static_cast<int>(i)); combined != phase.combined.end()) {
        const GpuStep& step = combined->second->step;
        const Combination& combination = *combined->second->shader.text.combination;
        table[places + 2 * i] = Dim(words_->place_to_read(step.bindings[index(combination.sums)]));
        table[places + 2 * i + 1] = Dim(words_->place_to_read(step.bindings[index(combination.rows)]));
        continue;
      }
      if (buffers[i].is_passed()) {
        if (!buffers[i].read_at.empty()) table[places + 2 * i] = Dim(words_->place_to_read(binding));
        continue;
      }
      texts_[number].bindings[i] = binding_for(binding, buffers[i].element);
      table[places + 2 * i] = Dim(pools_.place(binding.buffer).second / element_bytes(buffers[i].element));
    }
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (!buffers[i].write_at.empty())
        table[places + 2 * i + 1] = Dim(words_->place_to_write(written.step.bindings[i]));
    pad();
  }

  void pad() {
    while (dispatch_.table.size() % 4 != 0) dispatch_.table.emplace_back(0);
  }

  // A token's activations take a few MiB: a program with many more would not gain from one dispatch.
  void check_words() const {
    constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
    const std::int64_t bytes = 4 * words_->count();
    if (bytes > std::min(most_bytes, target_.max_binding_bytes))
      throw Refusal{fmt::format("its activations take {} bytes as words", bytes)};
  }

  void write_shader() {
    std::vector<PhaseText> texts;
    for (const Text& text : texts_) {
      const Shader::Finished& shader = text.first->written->shader;
      texts.push_back({&shader.text, shader.source.threads, text.bindings, text.first_size});
      for (const auto& [buffer, step] : text.first->combined)
        texts.back().combined.emplace(buffer, *step->shader.text.combination);
    }
    dispatch_.shader = phases_source(texts, bindings_, dispatch_.table.size() / 4, threads_);
    if (dispatch_.shader.workgroup_bytes > target_.workgroup_bytes)
      throw Refusal{fmt::format("its phases need {} bytes of workgroup memory, but the device has {}",
                                dispatch_.shader.workgroup_bytes, target_.workgroup_bytes)};
  }

  // Elements of 32 bits are words as they are.
  void find_readable() {
    for (const Readable& readable : program_.outputs) {
      if (program_.buffers[index(readable.buffer)].where != Buffer::Where::arena) continue;
      const auto first = words_->last_place(readable.buffer);
      if (!first || bits(readable.dtype) != 32) throw Refusal{"an output has elements of 16 bits"};
      dispatch_.words_of[readable.buffer] = *first;
    }
  }

  Target target_;
  int threads_, most_bindings_;
  Program& program_;
  Program scratch_;  // to which the kernels' workspaces are added
  StoragePools pools_;
  std::vector<WrittenStep> steps_;
  std::vector<Phase> phases_;
  std::vector<Text> texts_;
  std::map<std::string, std::size_t> numbers_;
  std::set<int> placed_, written_;  // buffers
  std::optional<PassedWords> words_;
  PersistentDispatch dispatch_;
  std::vector<PhaseBinding> bindings_;  // of the dispatch
};

}  // namespace

std::string make_persistent(Program& program, const Target& target) {
  std::vector<Buffer> buffers = program.buffers;
  try {
    auto dispatch = PersistentWriter(program, target).write();
    dispatch->unpooled = std::move(buffers);
    program.gpu.persistent = std::move(dispatch);
    return {};
  } catch (const Refusal& refusal) {
    program.buffers = buffers;
    return refusal.reason;
  }
}

}  // namespace jerboa::wgsl
