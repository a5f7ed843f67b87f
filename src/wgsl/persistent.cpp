#include "wgsl/persistent.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/integers.h"
#include "lower/index.h"
#include "wgsl/functions.h"
#include "wgsl/write_steps.h"

namespace jerboa::wgsl {
namespace {

using detail::index;

constexpr std::int64_t word_alignment = 32;  // a line of a cache

// Why a program cannot be one dispatch.
struct Refusal {
  std::string reason;
};

std::int64_t element_bytes(const std::string& element) {
  if (element == "vec4f" || element == "vec4u") return 16;
  if (element == "vec2u" || element == "vec4<f16>") return 8;
  return element == "f16" ? 2 : 4;
}

// Kernels write all that they write anew, and pass it on through their results alone.
bool can_be_phase(const KernelSpec& kernel) {
  return kernel.kind != KernelSpec::Kind::whole || kernel.op == Op::attention || kernel.op == Op::cache_append;
}

// Where each version of each activation is among the words: one that is written again gets new ones, so that no word is
// written twice, and a line of a cache that was read never changes afterwards.
class Words {
 public:
  explicit Words(const Program& program) : program_(program), current_(program.buffers.size()) {}

  std::int64_t read(const GpuStep::Binding& binding) {
    Version& version = current_[root(binding)];
    if (!version.first) open(version, root(binding));
    version.was_read = true;
    return *version.first + inside(binding);
  }
  // Several phases may each write a part before it is read.
  std::int64_t write(const GpuStep::Binding& binding) {
    Version& version = current_[root(binding)];
    if (!version.first || version.was_read) open(version, root(binding));
    return *version.first + inside(binding);
  }
  std::optional<std::int64_t> last(int buffer) const {
    const Version& version = current_[index(root_of(program_, buffer))];
    if (!version.first) return std::nullopt;
    return *version.first + inside({.buffer = buffer});
  }
  std::int64_t count() const { return count_; }

 private:
  struct Version {
    std::optional<std::int64_t> first;
    bool was_read = false;
  };
  std::size_t root(const GpuStep::Binding& binding) const { return index(root_of(program_, binding.buffer)); }
  std::int64_t inside(const GpuStep::Binding& binding) const {
    const Buffer& buffer = program_.buffers[index(binding.buffer)];
    if (buffer.dtype != program_.buffers[root(binding)].dtype) throw Refusal{"a tensor is part of one of another type"};
    return (buffer.inside + binding.offset) * 8 / bits(buffer.dtype);
  }
  void open(Version& version, std::size_t buffer) {
    const Buffer& root = program_.buffers[buffer];
    version = {count_, false};
    count_ += detail::round_up(detail::divide_up(root.bytes * 8, bits(root.dtype)), word_alignment);
  }

  const Program& program_;
  std::vector<Version> current_;  // by buffer
  std::int64_t count_ = 0;
};

// Storage that the same operand of a shader names in different layers, which therefore must be in one buffer.
class Pools {
 public:
  explicit Pools(Program& program) : program_(program), parent_(program.buffers.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  void unite(int a, int b) { parent_[index(find(a))] = find(b); }

  // Puts everything that is only read into as few buffers as hold it, and what is written into one for each operand.
  void make(const std::set<int>& used, const std::set<int>& written, const Target& target) {
    std::map<int, std::vector<int>> groups;
    for (const int buffer : used) groups[find(buffer)].push_back(buffer);
    std::vector<Pool> pools;
    for (const auto& [parent, members] : groups) {
      const bool is_written =
          std::any_of(members.begin(), members.end(), [&](int member) { return written.contains(member); });
      const bool is_storage = std::all_of(members.begin(), members.end(), [&](int member) {
        return program_.buffers[index(member)].where == Buffer::Where::storage;
      });
      if (members.size() > 1 && !is_storage) throw Refusal{"a kernel has an input where it has a parameter elsewhere"};
      std::int64_t bytes = 0;
      for (const int member : members) bytes += placed_bytes(member, target);
      if (bytes > target.max_binding_bytes) throw Refusal{"its parameters do not fit the bindings of a shader"};
      const auto found = std::find_if(pools.begin(), pools.end(), [&](const Pool& pool) {
        return is_storage && !is_written && pool.is_shared && pool.bytes + bytes <= target.max_binding_bytes;
      });
      if (found == pools.end()) {
        pools.push_back({members, bytes, is_storage && !is_written});
      } else {
        found->members.insert(found->members.end(), members.begin(), members.end());
        found->bytes += bytes;
      }
    }
    for (const Pool& pool : pools) add(pool, target);
  }

  // The buffer that is bound for this one, and where this one is in it.
  std::pair<int, std::int64_t> place(int buffer) const {
    const Buffer& placed = program_.buffers[index(buffer)];
    return placed.within < 0 ? std::pair(buffer, std::int64_t{0}) : std::pair(placed.within, placed.inside);
  }

 private:
  struct Pool {
    std::vector<int> members;
    std::int64_t bytes = 0;
    bool is_shared = false;
  };
  int find(int buffer) {
    while (parent_[index(buffer)] != buffer) buffer = parent_[index(buffer)] = parent_[index(parent_[index(buffer)])];
    return buffer;
  }
  std::int64_t placed_bytes(int buffer, const Target& target) const {
    return detail::round_up(program_.buffers[index(buffer)].bytes, target.offset_alignment);
  }
  void add(const Pool& pool, const Target& target) {
    if (pool.members.size() == 1) return;
    const auto number = static_cast<int>(program_.buffers.size());
    Buffer whole;
    whole.where = Buffer::Where::pool;
    whole.name = fmt::format("the pool of {}", program_.buffers[index(pool.members.front())].name);
    whole.dtype = DType::u32;
    for (const int member : pool.members) {
      Buffer& buffer = program_.buffers[index(member)];
      buffer.within = number;
      buffer.inside = whole.bytes;
      whole.bytes += placed_bytes(member, target);
    }
    whole.elements = whole.bytes / 4;
    program_.buffers.push_back(std::move(whole));
  }

  Program& program_;
  std::vector<int> parent_;
};

// What shaders of all phases share, and what runs them. The host gives the table's first vector: workgroups, phases.
constexpr const char* runner = R"(var<private> answers: u32;
var<workgroup> goes_on: u32;
fn passed_word(place: u32) -> u32 {{ return atomicLoad(&words[place]); }}
fn passed_four(place: u32) -> vec4u {{
  return vec4u(atomicLoad(&words[place]), atomicLoad(&words[place + 1u]), atomicLoad(&words[place + 2u]),
               atomicLoad(&words[place + 3u]));
}}
fn pass_word(place: u32, word: u32) {{ answers |= atomicExchange(&words[place], word); }}
@compute @workgroup_size({threads})
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32{subgroup_builtins}) {{
  let groups = table[0].x;
  if (lane == 0u) {{ goes_on = select(0u, 1u, atomicLoad(&control[1]) == 0u); }}
  if (workgroupUniformLoad(&goes_on) == 0u) {{ return; }}
  var expected = atomicLoad(&control[2]);
  for (var phase = 0u; phase < table[0].y; phase++) {{
    find_phase(phase);
    let row = table[1u + phase / 4u][phase % 4u];
    let count = table[row].y;
    switch (table[row].x) {{
{cases}      default: {{
        // A probe: each thread passes a word on, and checks one of another workgroup.
        let all = groups * {threads}u;
        let thread = workgroup.x * {threads}u + lane;
        let other = (thread + all / 3u + phase * 77u) % all;
        if (phase > 0u && passed_word(((phase + 1u) & 1u) * all + other) != phase + other) {{ atomicStore(&control[1], 2u); }}
        pass_word((phase & 1u) * all + thread, phase + 1u + thread);
      }}
    }}
    // The answers must have arrived before this workgroup does.
    if (answers == 0x9e3779b9u) {{ atomicStore(&control[3], answers); }}
    answers = 0u;
    workgroupBarrier();
    if (lane == 0u) {{
      atomicAdd(&control[0], 1u);
      expected += groups;
      goes_on = 1u;
      for (var polls = 0u; i32(atomicLoad(&control[0]) - expected) < 0; polls++) {{
        if (polls > 2000000u) {{
          atomicStore(&control[1], 1u);
          goes_on = 0u;
          break;
        }}
      }}
    }}
    if (workgroupUniformLoad(&goes_on) == 0u) {{ return; }}
  }}
  if (workgroup.x == 0u && lane == 0u) {{ atomicStore(&control[2], expected); }}
}}
)";

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

  std::shared_ptr<const PersistentDispatch> write() {
    for (const Dispatch& dispatch : program_.cpu.dispatches)
      for (const Dispatch::Part& part : dispatch.parts)
        if (!can_be_phase(program_.cpu.kernels[index(part.kernel)])) throw Refusal{"an op is not written as a phase"};
    steps_ = write_phases(scratch_, target_);
    if (steps_.empty()) throw Refusal{"there is nothing to do"};
    for (const WrittenStep& written : steps_) find_text(written);
    check_storage();
    pools_.make(placed_, written_, target_);
    words_.emplace(scratch_);
    add_table();
    find_readable();
    dispatch_.words = words_->count();
    dispatch_.phases = static_cast<int>(steps_.size());
    dispatch_.shader.source = source();
    dispatch_.shader.name = "persistent";
    dispatch_.shader.threads = threads_;
    dispatch_.shader.workgroup_bytes = workgroup_bytes(memory_);
    if (dispatch_.shader.workgroup_bytes > target_.workgroup_bytes) throw Refusal{"its phases need too much memory"};
    return std::make_shared<const PersistentDispatch>(std::move(dispatch_));
  }

 private:
  // Steps with the same text are the same phase of different layers.
  struct Text {
    const WrittenStep* first = nullptr;
    std::vector<int> bindings;   // of the dispatch, by the text's buffer
    std::size_t first_size = 0;  // in vectors of the table
  };

  void find_text(const WrittenStep& written) {
    if (written.step.shader < 0) throw Refusal{"it copies small operands into one buffer"};
    const ShaderText& text = written.shader.text;
    const int used = written.shader.source.threads;
    if (used != threads_ && (!is_independent(text) || threads_ % used != 0))
      throw Refusal{fmt::format("{} has workgroups of {} threads", written.shader.source.name, used)};
    std::string key = written.shader.source.source;
    for (const Dim& size : written.step.sizes) key += size.str() + ",";
    const auto [found, is_new] = numbers_.emplace(key, texts_.size());
    if (is_new) texts_.push_back({&written, std::vector<int>(text.buffers.size(), -1), 0});
    text_of_.push_back(found->second);
    const WrittenStep& first = *texts_[found->second].first;
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

  // Whether threads do not exchange anything, so that workgroups may be larger than they were written for.
  static bool is_independent(const ShaderText& text) { return text.workgroup_memory.empty() && !text.uses_subgroups; }

  // What a phase puts into storage, no later phase uses: only a dispatch later is it sure to be seen.
  void check_storage() const {
    std::set<int> gone;
    for (const WrittenStep& written : steps_) {
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
    const bool is_written = written_.contains(binding.buffer);
    for (std::size_t i = 0; i < dispatch_.bindings.size(); ++i)
      if (dispatch_.bindings[i].buffer == bound && elements_[i] == element) {
        dispatch_.bindings[i].written |= is_written;
        return static_cast<int>(i);
      }
    for (const GpuStep::Binding& other : dispatch_.bindings)
      if (other.buffer == bound && (is_written || other.written)) throw Refusal{"storage is written as another type"};
    dispatch_.bindings.push_back({bound, 0, program_.buffers[index(bound)].bytes, is_written});
    elements_.push_back(element);
    return static_cast<int>(dispatch_.bindings.size()) - 1;
  }

  // First workgroups and phases, then the row of each phase, then sizes, then the rows: the number of a text, that of
  // its workgroups, and where each operand is.
  void add_table() {
    std::vector<Dim>& table = dispatch_.table;
    table = {Dim(target_.persistent_workgroups), Dim(std::ssize(steps_))};
    pad();
    const std::size_t first_row = table.size();
    table.resize(first_row + steps_.size(), Dim(0));
    pad();
    for (Text& text : texts_) {
      text.first_size = table.size() / 4;
      const std::vector<Dim>& sizes = text.first->step.sizes;
      table.insert(table.end(), sizes.begin(), sizes.end());
      pad();
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      table[first_row + i] = Dim(std::ssize(table) / 4);
      add_row(steps_[i], text_of_[i]);
    }
    // Of every phase as many numbers are read as of that with the most.
    std::size_t longest = 0;
    for (const Text& text : texts_) longest = std::max(longest, 2 + 2 * text.first->shader.text.buffers.size());
    table.resize(table.size() + (longest + 3) / 4 * 4, Dim(0));
    constexpr std::size_t most = (64 << 10) / sizeof(std::uint32_t);
    if (table.size() > most) throw Refusal{"it has too many phases"};
    constexpr int always = 2;
    if (std::ssize(dispatch_.bindings) + always > most_bindings_) throw Refusal{"it needs too many bindings"};
  }

  void add_row(const WrittenStep& written, std::size_t number) {
    std::vector<Dim>& table = dispatch_.table;
    const std::vector<ShaderText::Buffer>& buffers = written.shader.text.buffers;
    table.insert(table.end(), {Dim(static_cast<std::int64_t>(number)), written.step.workgroups});
    const std::size_t places = table.size();
    table.resize(places + 2 * buffers.size(), Dim(0));
    // Everything that is read is found before anything is written anew.
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const GpuStep::Binding& binding = written.step.bindings[i];
      if (buffers[i].is_passed()) {
        if (!buffers[i].read_at.empty()) table[places + 2 * i] = Dim(words_->read(binding));
        continue;
      }
      texts_[number].bindings[i] = binding_for(binding, buffers[i].element);
      table[places + 2 * i] = Dim(pools_.place(binding.buffer).second / element_bytes(buffers[i].element));
    }
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (!buffers[i].write_at.empty()) table[places + 2 * i + 1] = Dim(words_->write(written.step.bindings[i]));
    pad();
  }

  void pad() {
    while (dispatch_.table.size() % 4 != 0) dispatch_.table.emplace_back(0);
  }

  // Elements of 32 bits are words as they are.
  void find_readable() {
    for (const Readable& readable : program_.outputs) {
      if (program_.buffers[index(readable.buffer)].where != Buffer::Where::arena) continue;
      const auto first = words_->last(readable.buffer);
      if (!first || bits(readable.dtype) != 32) throw Refusal{"an output has elements of 16 bits"};
      dispatch_.words_of[readable.buffer] = *first;
    }
  }

  std::string source() {
    ShaderText all;
    std::string functions, cases;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const ShaderText& text = texts_[i].first->shader.text;
      all.uses_f16 |= text.uses_f16;
      all.uses_subgroups |= text.uses_subgroups;
      all.uses_subgroup_matrices |= text.uses_subgroup_matrices;
      all.library.insert(text.library.begin(), text.library.end());
      memory_ = shared(memory_, text.workgroup_memory);
      const std::vector<std::size_t> staged = staged_in(text);
      for (std::size_t k = 0; k < staged.size(); ++k) {
        const std::int64_t fours = detail::divide_up(text.buffers[staged[k]].staged, 4);
        memory_ = shared(memory_, {{fmt::format("staged_{}", k), "vec4u", fours, 16 * fours}});
      }
      functions += phase_function(i);
    }
    for (std::size_t i = 0; i < texts_.size(); ++i) cases += phase_case(i);
    std::string source = enabled_features(all);
    // Where a phase's memory is comes from private variables, which are taken to differ between threads.
    if (all.uses_subgroups) source += "diagnostic(off, subgroup_uniformity);\n";
    source +=
        "@group(0) @binding(0) var<storage, read_write> control: array<atomic<u32>>;\n"
        "@group(0) @binding(1) var<storage, read_write> words: array<atomic<u32>>;\n";
    for (std::size_t i = 0; i < dispatch_.bindings.size(); ++i)
      source += fmt::format("@group(0) @binding({}) var<storage, {}> bound_{}: array<{}>;\n", i + 2,
                            dispatch_.bindings[i].written ? "read_write" : "read", i, elements_[i]);
    source += fmt::format("@group(0) @binding({}) var<uniform> table: array<vec4u, {}>;\n",
                          dispatch_.bindings.size() + 2, dispatch_.table.size() / 4);
    for (const ShaderText::WorkgroupArray& array : memory_)
      source +=
          fmt::format("var<workgroup> {}: array<{}, {}>;\n",
                      array.name.starts_with("staged_") ? array.name : merged_name(array), array.type, array.count);
    const std::string builtins =
        std::string(all.uses_subgroups ? ", @builtin(subgroup_invocation_id) subgroup_lane: u32" : "") +
        (all.uses_subgroup_matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
    return source + function_texts(all.library) + find_function() + functions +
           fmt::format(fmt::runtime(runner), fmt::arg("threads", threads_), fmt::arg("subgroup_builtins", builtins),
                       fmt::arg("cases", cases));
  }

  // Where the next phase's memory is: the numbers of its row behind the first two.
  std::string find_function() const {
    std::string variables, lines;
    std::size_t most = 0;
    for (const Text& text : texts_) most = std::max(most, 2 * text.first->shader.text.buffers.size());
    for (std::size_t i = 0; i < most; ++i) {
      variables += fmt::format("var<private> place_{}: u32;\n", i);
      lines += fmt::format("  place_{} = table[row + {}u].{};\n", i, (i + 2) / 4, "xyzw"[(i + 2) % 4]);
    }
    return variables + "fn find_phase(phase: u32) {\n  let row = table[1u + phase / 4u][phase % 4u];\n" + lines + "}\n";
  }

  // A phase as a function of the number of a workgroup.
  std::string phase_function(std::size_t number) const {
    const Text& phase = texts_[number];
    const ShaderText& text = phase.first->shader.text;
    Names names{{"sizes", "table"}};
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      const ShaderText::Buffer& buffer = text.buffers[i];
      if (!buffer.is_passed()) names[buffer.name] = fmt::format("bound_{}", phase.bindings[i]);
      if (!buffer.read_at.empty()) names[buffer.read_at] = fmt::format("place_{}", 2 * i);
      if (!buffer.write_at.empty()) names[buffer.write_at] = fmt::format("place_{}", 2 * i + 1);
    }
    const std::vector<std::size_t> staged = staged_in(text);
    for (std::size_t k = 0; k < staged.size(); ++k)
      names["staged_" + text.buffers[staged[k]].name] = fmt::format("staged_{}", k);
    rename_declared(text, fmt::format("phase_{}_", number), names);
    for (const ShaderText::WorkgroupArray& array : text.workgroup_memory) names[array.name] = merged_name(array);
    return renamed(with_sizes_from(text.functions, phase.first_size), names) +
           fmt::format("fn phase_{}(group: u32, lane: u32{}) {{\n{}}}\n", number,
                       subgroup_parameters(text, ", {}: u32"),
                       renamed(with_sizes_from(text.body, phase.first_size), names));
  }

  // The buffers of a text that its phase copies to workgroup memory.
  static std::vector<std::size_t> staged_in(const ShaderText& text) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < text.buffers.size(); ++i)
      if (text.buffers[i].staged > 0) numbers.push_back(i);
    return numbers;
  }

  // Runs a phase's workgroups one after another.
  std::string phase_case(std::size_t number) const {
    const ShaderText& text = texts_[number].first->shader.text;
    std::string lines = fmt::format("      case {}u: {{\n", number);
    const std::vector<std::size_t> staged = staged_in(text);
    // All words are asked for before the first is needed.
    std::string stores;
    for (std::size_t k = 0; k < staged.size(); ++k) {
      const std::int64_t elements = text.buffers[staged[k]].staged;
      for (std::int64_t first = 0; first < elements; first += threads_) {
        const bool is_whole = first + threads_ <= elements;
        const std::string place = fmt::format("lane + {}u", first), word = fmt::format("word_{}_{}", k, first);
        lines += fmt::format("        let {} = passed_word(place_{} + {});\n", word, 2 * staged[k],
                             is_whole ? place : fmt::format("min({}, {}u)", place, elements - 1));
        const std::string store = fmt::format("staged_{0}[({1}) >> 2u][({1}) & 3u] = {2};", k, place, word);
        stores += is_whole ? fmt::format("        {}\n", store)
                           : fmt::format("        if ({} < {}u) {{ {} }}\n", place, elements, store);
      }
    }
    lines += stores;
    if (!staged.empty()) lines += "        workgroupBarrier();\n";
    const int used = texts_[number].first->shader.source.threads, beside = threads_ / used;
    const std::string arguments = subgroup_parameters(text, ", {}");
    if (beside > 1)
      lines += fmt::format(
          "        for (var group = workgroup.x * {0}u + lane / {1}u; group < count; group += groups * {0}u) {{\n"
          "          phase_{2}(group, lane % {1}u{3});\n        }}\n",
          beside, used, number, arguments);
    else
      lines += fmt::format(
          "        for (var group = workgroup.x; group < count; group += groups) {{\n          phase_{}(group, "
          "lane{});\n{}        }}\n",
          number, arguments, text.workgroup_memory.empty() ? "" : "          workgroupBarrier();\n");
    return lines + "      }\n";
  }

  Target target_;
  int threads_, most_bindings_;
  Program& program_;
  Program scratch_;  // to which the kernels' workspaces are added
  Pools pools_;
  std::vector<WrittenStep> steps_;
  std::vector<Text> texts_;
  std::map<std::string, std::size_t> numbers_;
  std::vector<std::size_t> text_of_;  // by step
  std::set<int> placed_, written_;    // buffers
  std::optional<Words> words_;
  std::vector<std::string> elements_;  // by binding
  std::vector<ShaderText::WorkgroupArray> memory_;
  PersistentDispatch dispatch_;
};

}  // namespace

std::string make_persistent(Program& program, const Target& target) {
  const std::vector<Buffer> buffers = program.buffers;
  try {
    program.gpu.persistent = PersistentWriter(program, target).write();
    return {};
  } catch (const Refusal& refusal) {
    program.buffers = buffers;
    return refusal.reason;
  }
}

}  // namespace jerboa::wgsl
