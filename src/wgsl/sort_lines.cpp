#include "wgsl/sort_lines.h"

#include <algorithm>

#include "wgsl/lines.h"

// Lines are split into blocks. Each is sorted separately: in workgroup memory, or, if it is short or the driver is a
// software driver, by counting the elements that precede each one. Sorted blocks are merged pairwise, or, if only a few
// elements are needed, the first of each are collected and sorted again.
namespace jerboa::wgsl {
namespace {

struct BlockForm {
  int block = 64;
  bool counts = true;
};

BlockForm block_form(const Target& target, std::int64_t length) {
  if (target.software || length <= 64) return {};
  std::int64_t block = 128;
  while (block * 2 <= std::min<std::int64_t>(target.workgroup_bytes / 8, 2048) && block < length) block *= 2;
  return {static_cast<int>(block), false};
}

// Expressions of a key and, in a block, of its position; keys past the end of the line are larger than all others.
using SortedElement = std::function<void(Shader& shader, const std::string& line, const std::string& chunk,
                                         const std::string& rank, const std::string& key, const std::string& place)>;

void write_counting(KernelWriter& writer, const Dim& lines, const Dim& length, int block, const LineKey& key,
                    const SortedElement& use) {
  const Dim chunks = groups_of(length, block), count = lines * chunks * Dim(block);
  Shader shader = shader_of_elements(writer, "sort_by_counting", count);
  shader.line("let in_block = element % {0}u; let block = element / {0}u;", block);
  shader.line("let chunk = block % {0}; let line = block / {0};", shader.size(chunks));
  shader.line("let first = chunk * {}u; let place = first + in_block;", block);
  shader.line("let end = min(first + {}u, {});", block, shader.size(length));
  shader.line("var sort_key = 0xffffffffu; var rank = in_block;");
  shader.open("if (place < end) {{");
  shader.line("sort_key = {};", key(shader, "line", "place"));
  shader.line("rank = 0u;");
  shader.open("for (var other_place = first; other_place < end; other_place++) {{");
  shader.line("let other = {};", key(shader, "line", "other_place"));
  shader.line("if (other < sort_key || (other == sort_key && other_place < place)) {{ rank++; }}");
  shader.close();
  shader.close();
  use(shader, "line", "chunk", "rank", "sort_key", "place");
  add_shader_of_elements(writer, std::move(shader), count);
}

void write_bitonic(KernelWriter& writer, const Dim& lines, const Dim& length, int block, const LineKey& key,
                   const SortedElement& use) {
  const int threads = std::min(writer.target().max_invocations, block / 2);
  const Dim chunks = groups_of(length, block);
  Shader shader = writer.shader("sort_block", threads);
  shader.shared_array("keys", "u32", block);
  shader.shared_array("places", "u32", block);
  shader.line("let chunk = group % {0}; let line = group / {0};", shader.size(chunks));
  shader.open("for (var i = lane; i < {}u; i += {}u) {{", block, threads);
  shader.line("let place = chunk * {}u + i;", block);
  shader.line("places[i] = place;");
  shader.line("var sort_key = 0xffffffffu;");
  shader.open("if (place < {}) {{", shader.size(length));
  shader.line("sort_key = {};", key(shader, "line", "place"));
  shader.close();
  shader.line("keys[i] = sort_key;");
  shader.close();
  shader.open("for (var run = 2u; run <= {}u; run *= 2u) {{", block);
  shader.open("for (var step = run / 2u; step > 0u; step /= 2u) {{");
  shader.barrier();
  shader.open("for (var pair = lane; pair < {}u; pair += {}u) {{", block / 2, threads);
  shader.line("let low = 2u * pair - (pair & (step - 1u)); let high = low + step;");
  shader.line("let low_key = keys[low]; let high_key = keys[high];");
  shader.line("let low_place = places[low]; let high_place = places[high];");
  shader.line("let after = low_key > high_key || (low_key == high_key && low_place > high_place);");
  shader.open("if (after == ((low & run) == 0u)) {{");
  shader.line("keys[low] = high_key; keys[high] = low_key;");
  shader.line("places[low] = high_place; places[high] = low_place;");
  shader.close();
  shader.close();
  shader.close();
  shader.close();
  shader.barrier();
  shader.open("for (var rank = lane; rank < {}u; rank += {}u) {{", block, threads);
  shader.line("let sort_key = keys[rank]; let place = places[rank];");
  use(shader, "line", "chunk", "rank", "sort_key", "place");
  shader.close();
  writer.add(std::move(shader), lines * chunks);
}

void write_blocks(KernelWriter& writer, const Dim& lines, const Dim& length, const BlockForm& form, const LineKey& key,
                  const SortedElement& use) {
  (form.counts ? write_counting : write_bitonic)(writer, lines, length, form.block, key, use);
}

// Each element finds its rank in two adjacent runs by counting the elements of the other run that precede it.
void write_merge(KernelWriter& writer, const Dim& lines, const Dim& length, std::int64_t run, const SortedLines& from,
                 const SortedLines& to) {
  const Dim count = lines * length;
  Shader shader = shader_of_elements(writer, "merge_runs", count);
  const std::string size = shader.size(length);
  shader.line("let place = element % {0}; let start = element - place;", size);
  shader.line("let run = place / {0}u; let is_left = (run & 1u) == 0u;", run);
  shader.line("let sort_key = {};", shader.load(from.keys, "element"));
  shader.line("let other_start = min((run ^ 1u) * {}u, {});", run, size);
  shader.line("var low = other_start; var high = min(other_start + {}u, {});", run, size);
  shader.open("while (low < high) {{");
  shader.line("let middle = (low + high) / 2u;");
  shader.line("let other = {};", shader.load(from.keys, "start + middle"));
  shader.line(
      "if (other < sort_key || (other == sort_key && !is_left)) {{ low = middle + 1u; }} else {{ high = middle; }}");
  shader.close();
  shader.line("let rank = start + (run & ~1u) * {0}u + place - run * {0}u + low - other_start;", run);
  shader.store(to.keys, "rank", "sort_key");
  shader.store(to.places, "rank", shader.load(from.places, "element"));
  add_shader_of_elements(writer, std::move(shader), count);
}

}  // namespace

std::string ordered_key(Shader& shader, DType dtype, const std::string& value, bool descending) {
  std::string key;
  switch (dtype) {
    case DType::u32: key = value; break;
    case DType::i32: key = fmt::format("(bitcast<u32>({}) ^ 0x80000000u)", value); break;
    case DType::boolean: key = fmt::format("select(0u, 1u, {})", value); break;
    default:
      shader.declare(
          "fn ordered_bits(value: f32) -> u32 {\n"
          "  let bits = select(bitcast<u32>(value), 0u, value == 0.0);\n"
          "  return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);\n"
          "}\n");
      key = fmt::format("ordered_bits({})", value);
  }
  return descending ? "~" + key : key;
}

SortedLines sort_lines(KernelWriter& writer, const Dim& lines, const Dim& length, const LineKey& key) {
  const BlockForm form = block_form(writer.target(), length.upper_bound());
  const Dim count = lines * length;
  SortedLines sorted{writer.workspace(DType::u32, count), writer.workspace(DType::u32, count)};
  write_blocks(
      writer, lines, length, form, key,
      [&](Shader& shader, const std::string& line, const std::string& chunk, const std::string& rank,
          const std::string& sort_key, const std::string& place) {
        const std::string in_line = shader.let("in_line", fmt::format("{} * {}u + {}", chunk, form.block, rank));
        shader.open("if ({} < {}) {{", in_line, shader.size(length));
        const std::string to = shader.let("to", fmt::format("{} * {} + {}", line, shader.size(length), in_line));
        shader.store(sorted.keys, to, sort_key);
        shader.store(sorted.places, to, place);
        shader.close();
      });
  if (length.upper_bound() <= form.block) return sorted;
  SortedLines other{writer.workspace(DType::u32, count), writer.workspace(DType::u32, count)};
  for (std::int64_t run = form.block; run < length.upper_bound(); run *= 2) {
    write_merge(writer, lines, length, run, sorted, other);
    std::swap(sorted, other);
  }
  return sorted;
}

void select_lowest(KernelWriter& writer, const Dim& lines, const Dim& length, const Dim& k, const LineKey& key,
                   const RankedElement& use) {
  const BlockForm form = block_form(writer.target(), length.upper_bound());
  // One block is enough.
  if (length.upper_bound() <= form.block) {
    write_blocks(writer, lines, length, form, key,
                 [&](Shader& shader, const std::string& line, const std::string&, const std::string& rank,
                     const std::string&, const std::string& place) {
                   shader.open("if ({} < {}) {{", rank, shader.size(k));
                   use(shader, line, rank, place);
                   shader.close();
                 });
    return;
  }
  const Dim chunks = groups_of(length, form.block), found = chunks * k;
  if (k.upper_bound() * 4 > form.block) {
    const SortedLines sorted = sort_lines(writer, lines, length, key);
    const Dim count = lines * k;
    Shader shader = shader_of_elements(writer, "take_lowest", count);
    shader.line("let rank = element % {0}; let line = element / {0};", shader.size(k));
    shader.line("let place = {};", shader.load(sorted.places, fmt::format("line * {} + rank", shader.size(length))));
    use(shader, "line", "rank", "place");
    add_shader_of_elements(writer, std::move(shader), count);
    return;
  }
  // Collects the lowest keys of each block, block by block: equal keys stay in order of position.
  const int keys = writer.workspace(DType::u32, lines * found), places = writer.workspace(DType::u32, lines * found);
  write_blocks(writer, lines, length, form, key,
               [&](Shader& shader, const std::string& line, const std::string& chunk, const std::string& rank,
                   const std::string& sort_key, const std::string& place) {
                 shader.open("if ({} < {}) {{", rank, shader.size(k));
                 const std::string to = shader.let("to", fmt::format("{} * {} + {} * {} + {}", line, shader.size(found),
                                                                     chunk, shader.size(k), rank));
                 shader.store(keys, to, sort_key);
                 shader.store(places, to, place);
                 shader.close();
               });
  select_lowest(
      writer, lines, found, k,
      [&](Shader& shader, const std::string& line, const std::string& place) {
        return shader.load(keys, fmt::format("{} * {} + {}", line, shader.size(found), place));
      },
      [&](Shader& shader, const std::string& line, const std::string& rank, const std::string& place) {
        use(shader, line, rank,
            shader.let("origin", shader.load(places, fmt::format("{} * {} + {}", line, shader.size(found), place))));
      });
}

}  // namespace jerboa::wgsl
