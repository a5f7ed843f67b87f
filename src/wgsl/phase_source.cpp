#include "wgsl/phase_source.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>

#include "base/integers.h"
#include "base/stable_sort.h"
#include "wgsl/attention.h"
#include "wgsl/functions.h"
#include "wgsl/shader.h"

namespace jerboa::wgsl {
namespace {

// The code that all phases share, and that runs them. A word is polled until it has been written. The counter only says
// when polling is worthwhile: its increments may overtake the words. An integer that equals the mark of unwritten words
// fails the run, as if it had never arrived.
constexpr const char* runner = R"(const unwritten = {unwritten}u;
var<workgroup> goes_on: u32;
fn has_failed(polls: u32) -> bool {{ return (polls & 63u) == 63u && atomicLoad(&control[1]) != 0u; }}
fn gives_up(polls: u32) -> bool {{
  if (polls < table[0].w) {{ return has_failed(polls); }}
  atomicStore(&control[1], 3u);
  return true;
}}
fn wait_for_arrivals(lane: u32, expected: u32) {{
  if (lane == 0u) {{
    for (var polls = 0u; i32(atomicLoad(&words[0]) - expected) < 0 && !has_failed(polls); polls++) {{
      if (polls >= table[0].z) {{ atomicStore(&control[1], 1u); }}
    }}
  }}
  workgroupBarrier();
}}
fn passed_word(place: u32) -> u32 {{
  for (var polls = 0u; ; polls++) {{
    let word = atomicLoad(&words[place]);
    if (word != unwritten || gives_up(polls)) {{ return word; }}
  }}
}}
fn passed_four(place: u32) -> vec4u {{
  for (var polls = 0u; ; polls++) {{
    let four = vec4u(atomicLoad(&words[place]), atomicLoad(&words[place + 1u]), atomicLoad(&words[place + 2u]),
                     atomicLoad(&words[place + 3u]));
    if (all(four != vec4u(unwritten)) || gives_up(polls)) {{ return four; }}
  }}
}}
fn pass_word(place: u32, word: u32) {{ atomicStore(&words[place], word); }}
fn pass_float(place: u32, value: f32) {{
  let word = bitcast<u32>(value);
  pass_word(place, select(word, 0x7fc00000u, word == unwritten));
}}
)";

// After a failure the phases continue without waiting, because all threads must meet at the barriers.
constexpr const char* main_function = R"(@compute @workgroup_size({threads})
fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(local_invocation_index) lane: u32{subgroup_builtins}) {{
  let groups = table[0].x;
  if (lane == 0u) {{ goes_on = select(0u, 1u, atomicLoad(&control[1]) == 0u); }}
  if (workgroupUniformLoad(&goes_on) == 0u) {{ return; }}
  for (var phase = 0u; phase < table[0].y; phase++) {{
    let row = table[1u + phase / 4u][phase % 4u];
    let count = table[row].y;
    find_phase(row);
    wait_for_arrivals(lane, unwritten + groups * phase);
    switch (table[row].x) {{
{cases}      default: {{
        // A probe: each thread passes a word on, and checks one of another workgroup, more often than its neighbours.
        let all = groups * {threads}u;
        let thread = workgroup.x * {threads}u + lane;
        let other = (thread + all / 3u + phase * 77u) % all;
        var is_right = true;
        for (var again = (lane + phase) % 5u; phase > 0u && is_right; again--) {{
          is_right = passed_word({first_word}u + (phase - 1u) * all + other) == phase + other;
          if (again == 0u) {{ break; }}
        }}
        let is_sound = {is_sound};
        if (!is_sound) {{ atomicStore(&control[1], 2u); }}
        pass_word({first_word}u + phase * all + thread, phase + 1u + thread);
      }}
    }}
    workgroupBarrier();
    if (lane == 0u) {{ atomicAdd(&words[0], 1u); }}
  }}
}}
)";

// Kernels exchange values within a subgroup after its threads have waited for different numbers of rounds.
constexpr const char* all_are_right = "subgroupAdd(select(0u, 1u, is_right)) == subgroup_size";

// Workgroup memory, which only one phase uses at a time: all phases share the largest array of each type, then the
// second largest, and so on.
class PhaseMemory {
 public:
  // Adds the arrays that a text needs, and names them.
  void add(std::vector<ShaderText::WorkgroupArray> arrays, Names& names) {
    detail::stable_sort(arrays, [](const auto& a, const auto& b) { return a.count > b.count; });
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
    constexpr std::int64_t bytes_of_runner = 16;  // for its word, rounded up like the others
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

  std::map<std::string, std::vector<std::int64_t>> counts_;  // by type, in descending order
};

// A name that no variable of another shader has.
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
      for (const auto& [buffer, combination] : texts_[i].combined)
        if (combination.dtype == DType::bf16) all.library.insert("round_bf16");
      name(i);
      functions += function(i);
      cases += run(i);
    }
    std::string source = enabled_features(all);
    // The location of a phase's memory is in private variables, which WGSL treats as non-uniform.
    if (all.uses_subgroups) source += "diagnostic(off, subgroup_uniformity);\n";
    source += declarations();
    const std::string builtins =
        std::string(all.uses_subgroups ? ", @builtin(subgroup_invocation_id) subgroup_lane: u32, "
                                         "@builtin(subgroup_size) subgroup_size: u32"
                                       : "") +
        (all.uses_subgroup_matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
    const char* is_sound = all.uses_subgroups ? all_are_right : "is_right";
    source +=
        fmt::format(fmt::runtime(runner), fmt::arg("unwritten", PersistentDispatch::unwritten)) +
        function_texts(all.library) + find_function() + functions +
        fmt::format(fmt::runtime(main_function), fmt::arg("threads", threads_),
                    fmt::arg("first_word", PersistentDispatch::counter_words), fmt::arg("subgroup_builtins", builtins),
                    fmt::arg("cases", cases), fmt::arg("is_sound", is_sound));
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

  // The function that locates a phase's memory, from the numbers of its row after the header.
  std::string find_function() const {
    std::string variables, lines;
    std::size_t most = 0;
    for (const PhaseText& text : texts_) most = std::max(most, 2 * text.text->buffers.size());
    for (std::size_t i = 0; i < most; ++i) {
      variables += fmt::format("var<private> {}: u32;\n", start_of_memory(i));
      lines += fmt::format("  {} = table[row + {}u].{};\n", start_of_memory(i), (i + row_header) / 4,
                           "xyzw"[(i + row_header) % 4]);
    }
    return variables + "fn find_phase(row: u32) {\n" + lines + "}\n";
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
    for (const auto& [buffer, combination] : phase.combined)
      for (const char* array : {"part_tops", "part_totals"})
        memory.push_back({array, "f32", combination.queries * combination.parts, 0});
    memory_.add(std::move(memory), names);
  }

  // A phase as a function of a workgroup's number.
  std::string function(std::size_t number) const {
    const ShaderText& text = *texts_[number].text;
    const auto renamed_text = [&](const std::string& part) {
      return renamed(with_sizes_from(part, texts_[number].first_size), names_[number]);
    };
    return fmt::format("fn stage_{}(lane: u32) {{\n{}}}\n", number, stage(number)) + renamed_text(text.functions) +
           fmt::format("fn phase_{}(group: u32, lane: u32{}) {{\n{}}}\n", number,
                       subgroup_parameters(text, ", {}: u32"), renamed_text(text.body));
  }

  // Copies operands to workgroup memory. All loads are issued before the first result is needed.
  std::string stage(std::size_t number) const {
    const ShaderText& text = *texts_[number].text;
    Staging staging;
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      if (text.buffers[i].staged == 0) continue;
      const Staged staged{names_[number].at("staged"), names_[number].at("staged_" + text.buffers[i].name),
                          text.buffers[i].staged, i};
      const auto combined = texts_[number].combined.find(static_cast<int>(i));
      if (combined == texts_[number].combined.end())
        stage_words(staged, staging);
      else
        stage_parts(staged, combined->second, names_[number], staging);
    }
    if (staging.stores.empty()) return "";
    return staging.declarations + "  for (var polls = 0u; ; polls++) {\n" + staging.loads +
           fmt::format("    if (!({}) || gives_up(polls)) {{ break; }}\n  }}\n", staging.check) + staging.prepares +
           staging.stores + "  workgroupBarrier();\n";
  }

  // The steps before a phase begins, in this order.
  struct Staging {
    std::string declarations;
    std::string loads;     // of words that other workgroups wrote
    std::string check;     // whether any was not written yet
    std::string prepares;  // turns some of them into factors
    std::string stores;    // to workgroup memory

    void load(const std::string& name, const std::string& place) {
      declarations += fmt::format("  var {}: u32;\n", name);
      loads += fmt::format("    {} = atomicLoad(&words[{}]);\n", name, place);
      check += fmt::format("{}({} == unwritten)", check.empty() ? "" : " | ", name);
    }
  };

  // A buffer that is copied.
  struct Staged {
    std::string array, first;
    std::int64_t elements = 0;
    std::size_t buffer = 0;

    // Stores an element, if it exists.
    std::string store(const std::string& place, std::int64_t first_of_all, std::int64_t threads,
                      const std::string& value) const {
      const std::string line = fmt::format("{0}[{1} + (({2}) >> 2u)][({2}) & 3u] = {3};", array, first, place, value);
      return first_of_all + threads <= elements ? fmt::format("  {}\n", line)
                                                : fmt::format("  if ({} < {}u) {{ {} }}\n", place, elements, line);
    }
  };

  // Calls `f` with the index of the element that a thread copies next, a clamped index, and the first thread's.
  template <class F>
  void for_each_place(std::int64_t elements, F f) const {
    for (std::int64_t first = 0; first < elements; first += threads_) {
      const std::string place = fmt::format("lane + {}u", first);
      f(place, first + threads_ <= elements ? place : fmt::format("min({}, {}u)", place, elements - 1), first);
    }
  }

  void stage_words(const Staged& staged, Staging& staging) const {
    for_each_place(staged.elements, [&](const std::string& place, const std::string& safe, std::int64_t first) {
      const std::string word = fmt::format("word_{}_{}", staged.buffer, first);
      staging.load(word, fmt::format("{} + {}", start_of_memory(2 * staged.buffer), safe));
      staging.stores += staged.store(place, first, threads_, fmt::format("bitcast<f32>({})", word));
    });
  }

  // Combines the parts of attention as its own shader does (attention_parts.cpp).
  void stage_parts(const Staged& staged, const Combination& combination, const Names& names, Staging& staging) const {
    const std::int64_t parts = combination.parts, size = combination.size;
    const std::string sums = start_of_memory(2 * staged.buffer), rows = start_of_memory(2 * staged.buffer + 1);
    const std::string &tops = names.at("part_tops"), &totals = names.at("part_totals");
    std::string scores, weights;
    for_each_place(combination.queries * parts, [&](const std::string&, const std::string& safe, std::int64_t first) {
      const std::string top = fmt::format("top_{}_{}", staged.buffer, first);
      const std::string total = fmt::format("total_{}_{}", staged.buffer, first);
      staging.load(top, fmt::format("{} + ({}) * 2u", rows, safe));
      staging.load(total, fmt::format("{} + ({}) * 2u + 1u", rows, safe));
      // Threads past the last part repeat it.
      scores += fmt::format("  {0}[{1}] = bitcast<f32>({2}); {3}[{1}] = bitcast<f32>({4});\n", tops, safe, top, totals,
                            total);
      weights += fmt::format(
          "  let first_part_{0} = ({1}) / {2}u * {2}u;\n  var all_top_{0} = {3};\n"
          "  for (var part = 0u; part < {2}u; part++) {{ all_top_{0} = max(all_top_{0}, {4}[first_part_{0} + "
          "part]); }}\n"
          "  let weight_{0} = exp({4}[{1}] - all_top_{0});\n",
          first, safe, parts, unseen_score, tops);
    });
    const std::int64_t pairs = combination.queries * parts;
    staging.prepares += scores + "  workgroupBarrier();\n" + weights + "  workgroupBarrier();\n";
    for_each_place(pairs, [&](const std::string&, const std::string& safe, std::int64_t first) {
      staging.prepares += fmt::format("  {}[{}] = weight_{};\n", tops, safe, first);
    });
    staging.prepares += "  workgroupBarrier();\n";
    for_each_place(staged.elements, [&](const std::string& place, const std::string& safe, std::int64_t first) {
      const std::string query = fmt::format("query_{}_{}", staged.buffer, first);
      staging.declarations += fmt::format("  let {} = ({}) / {}u * {}u;\n", query, safe, size, parts);
      std::string lines = fmt::format("  var all_total_{0} = 0.0; var all_sum_{0} = 0.0;\n", first);
      for (std::int64_t part = 0; part < parts; ++part) {
        const std::string word = fmt::format("sum_{}_{}_{}", staged.buffer, first, part);
        staging.load(word, fmt::format("{} + ({} + {}u) * {}u + ({}) % {}u", sums, query, part, size, safe, size));
        lines += fmt::format(
            "  all_total_{0} += {1}[{2} + {3}u] * {4}[{2} + {3}u];\n  all_sum_{0} += {1}[{2} + {3}u] * "
            "bitcast<f32>({5});\n",
            first, tops, query, part, totals, word);
      }
      const std::string value = fmt::format("select(0.0, all_sum_{0} / all_total_{0}, all_total_{0} > 0.0)", first);
      staging.stores += lines + staged.store(place, first, threads_, rounded_value(value, combination.dtype));
    });
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
    return fmt::format("      case {0}u: {{\n        stage_{0}(lane);\n{1}      }}\n", number, groups);
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
