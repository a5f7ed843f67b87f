#include "wgsl/phase_source.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>

#include "base/integers.h"
#include "wgsl/functions.h"

namespace jerboa::wgsl {
namespace {

// What the texts of all phases share, and what runs them.
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
        if (polls >= table[0].z) {{
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

// Workgroup memory, of which only one phase at a time uses any: the largest array of a type is that of all phases, then
// the second largest, and so on.
class PhaseMemory {
 public:
  // Adds what a text needs, and names it.
  void add(std::vector<ShaderText::WorkgroupArray> arrays, Names& names) {
    std::stable_sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    std::map<std::string, std::size_t> used;  // by type
    for (const ShaderText::WorkgroupArray& array : arrays) {
      const std::size_t rank = used[array.type]++;
      std::vector<std::int64_t>& counts = counts_[array.type];
      if (counts.size() <= rank) counts.push_back(0);
      counts[rank] = std::max(counts[rank], array.count);
      names[array.name] = name(array.type, rank);
    }
  }

  std::string declarations() const {
    std::string lines;
    for (const auto& [type, counts] : counts_)
      for (std::size_t rank = 0; rank < counts.size(); ++rank)
        lines += fmt::format("var<workgroup> {}: array<{}, {}>;\n", name(type, rank), type, counts[rank]);
    return lines;
  }

  std::int64_t bytes() const {
    constexpr std::int64_t bytes_of_runner = 16;  // its word, rounded as others are
    std::int64_t bytes = bytes_of_runner;
    for (const auto& [type, counts] : counts_)
      for (const std::int64_t count : counts) bytes += workgroup_array_bytes(type, count);
    return bytes;
  }

 private:
  static std::string name(const std::string& type, std::size_t rank) {
    std::string word;
    for (const char c : type)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) word += c;
    return fmt::format("memory_{}_{}", word, rank);
  }

  std::map<std::string, std::vector<std::int64_t>> counts_;  // by type, from the largest on
};

// The memory of one phase has no name that another shader's variables have.
std::string start_of_memory(std::size_t number) { return fmt::format("memory_start_{}", number); }

class PhasesSource {
 public:
  PhasesSource(const std::vector<PhaseText>& texts, const std::vector<PhaseBinding>& bindings,
               std::size_t table_vectors, int threads)
      : texts_(texts), bindings_(bindings), table_vectors_(table_vectors), threads_(threads), names_(texts.size()) {}

  ShaderSource write() {
    ShaderText all;
    std::string functions, cases;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const ShaderText& text = *texts_[i].text;
      all.uses_f16 |= text.uses_f16;
      all.uses_subgroups |= text.uses_subgroups;
      all.uses_subgroup_matrices |= text.uses_subgroup_matrices;
      all.library.insert(text.library.begin(), text.library.end());
      name(i);
      functions += function(i);
      cases += run(i);
    }
    std::string source = enabled_features(all);
    // Where a phase's memory is comes from private variables, which are taken to differ between threads.
    if (all.uses_subgroups) source += "diagnostic(off, subgroup_uniformity);\n";
    source += declarations();
    const std::string builtins =
        std::string(all.uses_subgroups ? ", @builtin(subgroup_invocation_id) subgroup_lane: u32" : "") +
        (all.uses_subgroup_matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
    source += function_texts(all.library) + find_function() + functions +
              fmt::format(fmt::runtime(runner), fmt::arg("threads", threads_), fmt::arg("subgroup_builtins", builtins),
                          fmt::arg("cases", cases));
    return {"persistent", std::move(source), threads_, memory_.bytes()};
  }

 private:
  std::string declarations() const {
    std::string lines =
        "@group(0) @binding(0) var<storage, read_write> control: array<atomic<u32>>;\n"
        "@group(0) @binding(1) var<storage, read_write> words: array<atomic<u32>>;\n";
    for (std::size_t i = 0; i < bindings_.size(); ++i)
      lines += fmt::format("@group(0) @binding({}) var<storage, {}> bound_{}: array<{}>;\n", i + 2,
                           bindings_[i].written ? "read_write" : "read", i, bindings_[i].element);
    lines += fmt::format("@group(0) @binding({}) var<uniform> table: array<vec4u, {}>;\n", bindings_.size() + 2,
                         table_vectors_);
    return lines + memory_.declarations();
  }

  // Where a phase's memory is: the numbers of its row behind the first two.
  std::string find_function() const {
    std::string variables, lines;
    std::size_t most = 0;
    for (const PhaseText& text : texts_) most = std::max(most, 2 * text.text->buffers.size());
    for (std::size_t i = 0; i < most; ++i) {
      variables += fmt::format("var<private> {}: u32;\n", start_of_memory(i));
      lines += fmt::format("  {} = table[row + {}u].{};\n", start_of_memory(i), (i + 2) / 4, "xyzw"[(i + 2) % 4]);
    }
    return variables + "fn find_phase(phase: u32) {\n  let row = table[1u + phase / 4u][phase % 4u];\n" + lines + "}\n";
  }

  void name(std::size_t number) {
    const PhaseText& phase = texts_[number];
    const ShaderText& text = *phase.text;
    Names& names = names_[number];
    names["sizes"] = "table";
    std::int64_t staged = 0;  // vectors
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      const ShaderText::Buffer& buffer = text.buffers[i];
      if (!buffer.is_passed()) names[buffer.name] = fmt::format("bound_{}", phase.bindings[i]);
      if (!buffer.read_at.empty()) names[buffer.read_at] = start_of_memory(2 * i);
      if (!buffer.write_at.empty()) names[buffer.write_at] = start_of_memory(2 * i + 1);
      if (buffer.staged == 0) continue;
      names["staged_" + buffer.name] = fmt::format("{}u", staged);
      staged += detail::divide_up(buffer.staged, 4);
    }
    rename_declared(text, fmt::format("phase_{}_", number), names);
    std::vector<ShaderText::WorkgroupArray> memory = text.workgroup_memory;
    if (staged > 0) memory.push_back({"staged", "vec4f", staged, 0});
    memory_.add(std::move(memory), names);
  }

  // A phase as a function of the number of a workgroup.
  std::string function(std::size_t number) const {
    const ShaderText& text = *texts_[number].text;
    const auto renamed_text = [&](const std::string& part) {
      return renamed(with_sizes_from(part, texts_[number].first_size), names_[number]);
    };
    return renamed_text(text.functions) + fmt::format("fn phase_{}(group: u32, lane: u32{}) {{\n{}}}\n", number,
                                                      subgroup_parameters(text, ", {}: u32"), renamed_text(text.body));
  }

  // Copies operands to workgroup memory. All words are asked for before the first is needed.
  std::string stage(std::size_t number) const {
    const ShaderText& text = *texts_[number].text;
    const Names& names = names_[number];
    std::string loads, stores;
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      const std::int64_t elements = text.buffers[i].staged;
      for (std::int64_t first = 0; first < elements; first += threads_) {
        const bool is_whole = first + threads_ <= elements;
        const std::string place = fmt::format("lane + {}u", first), word = fmt::format("word_{}_{}", i, first);
        loads += fmt::format("        let {} = passed_word({} + {});\n", word, start_of_memory(2 * i),
                             is_whole ? place : fmt::format("min({}, {}u)", place, elements - 1));
        const std::string store =
            fmt::format("{0}[{1} + (({2}) >> 2u)][({2}) & 3u] = bitcast<f32>({3});", names.at("staged"),
                        names.at("staged_" + text.buffers[i].name), place, word);
        stores += is_whole ? fmt::format("        {}\n", store)
                           : fmt::format("        if ({} < {}u) {{ {} }}\n", place, elements, store);
      }
    }
    return stores.empty() ? "" : loads + stores + "        workgroupBarrier();\n";
  }

  // Runs a phase's workgroups one after another.
  std::string run(std::size_t number) const {
    const ShaderText& text = *texts_[number].text;
    const int used = texts_[number].threads, beside = threads_ / used;
    const std::string arguments = subgroup_parameters(text, ", {}");
    const std::string groups =
        beside > 1
            ? fmt::format(
                  "        for (var group = workgroup.x * {0}u + lane / {1}u; group < count; group += groups * {0}u) "
                  "{{\n"
                  "          phase_{2}(group, lane % {1}u{3});\n        }}\n",
                  beside, used, number, arguments)
            : fmt::format(
                  "        for (var group = workgroup.x; group < count; group += groups) {{\n          phase_{}(group, "
                  "lane{});\n{}        }}\n",
                  number, arguments, text.workgroup_memory.empty() ? "" : "          workgroupBarrier();\n");
    return fmt::format("      case {}u: {{\n{}{}      }}\n", number, stage(number), groups);
  }

  const std::vector<PhaseText>& texts_;
  const std::vector<PhaseBinding>& bindings_;
  std::size_t table_vectors_;
  int threads_;
  std::vector<Names> names_;  // by text
  PhaseMemory memory_;
};

}  // namespace

ShaderSource phases_source(const std::vector<PhaseText>& texts, const std::vector<PhaseBinding>& bindings,
                           std::size_t table_vectors, int threads) {
  return PhasesSource(texts, bindings, table_vectors, threads).write();
}

}  // namespace jerboa::wgsl
