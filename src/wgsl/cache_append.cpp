#include <jerboa/ir/packed_cache.h>

#include "base/integers.h"
#include "wgsl/lines.h"
#include "wgsl/whole_kernels.h"

// Puts values into caches, rounding them to 8 bits where the cache holds such rows.
namespace jerboa::wgsl {
namespace {

// If two values go to the same slot, the later one wins.
class CacheAppend {
 public:
  explicit CacheAppend(KernelWriter& writer)
      : writer_(writer),
        values_(writer.kernel().operands[1]),
        positions_(writer.kernel().operands[2]),
        table_(writer.kernel().operands[3]),
        out_(writer.kernel().results[0]),
        time_(values_.shape[2]),
        capacity_(is_paged() ? table_.shape[1] * out_.shape[2] : out_.shape[2]) {}

  void write() {
    const TensorAccess& cache = writer_.kernel().operands[0];
    if (cache.binding != out_.binding) write_copy(writer_, cache, out_);
    // Slots are computed once for all heads if that means scanning many positions.
    constexpr std::int64_t few = 8;
    const int slots = time_.upper_bound() > few ? write_slots() : -1;
    // One thread for each element of the rows that are written.
    Shape shape = values_.shape;
    shape[3] = out_.shape[3];
    const Dim count = element_count(shape);
    Shader shader = shader_of_elements(writer_, packs() ? "cache_append_packed" : "cache_append", count);
    if (packs()) write_group_scale(shader);
    auto indices = shader.split_index("element", shape);
    const std::string batch = shader.let("batch", indices[0]), time = shader.let("time", indices[2]);
    if (slots < 0)
      write_slot(shader, batch, time, time + " + 1u", 1);
    else
      shader.line("let slot = {};", shader.load(slots, fmt::format("{} * {} + {}", batch, shader.size(time_), time)));
    shader.line("if (slot == 0xffffffffu) {{ return; }}");
    const std::string value = packs() ? packed_word(shader, indices) : shader.load(values_, indices);
    indices[2] = "slot";
    if (is_paged()) {
      const std::string block = shader.size(out_.shape[2]);
      shader.line("let block = u32({});", shader.load(table_, {batch, fmt::format("(slot / {})", block)}));
      shader.line("if (block >= {}) {{ return; }}", shader.size(out_.shape[0]));
      indices[0] = "block";
      indices[2] = fmt::format("(slot % {})", block);
    }
    shader.store(out_, indices, value);
    add_shader_of_elements(writer_, std::move(shader), count);
  }

 private:
  bool is_paged() const { return table_.binding >= 0; }
  // Whether values are rounded to 8 bits.
  bool packs() const { return values_.dtype != out_.dtype; }

  // Declares `group_scale`: the bits of the bf16 scale that some features of a row share. Magnitudes are compared by
  // their bits, in which infinity and NaN come last.
  void write_group_scale(Shader& shader) {
    shader.begin_function("fn group_scale(batch: u32, head: u32, time: u32, number: u32) -> u32");
    shader.line("let first = number * {}u;", features_per_scale);
    shader.line("var largest = 0u;");
    shader.open("for (var feature = first; feature < min(first + {}u, {}); feature++) {{", features_per_scale,
                shader.size(values_.shape[3]));
    shader.line("largest = max(largest, bitcast<u32>({}) & 0x7fffffffu);",
                shader.load(values_, {"batch", "head", "time", "feature"}));
    shader.close();
    shader.line("if (largest >= 0x7f800000u) {{ return {}u; }}", not_a_number);
    shader.line("let scale = bitcast<f32>(largest) * {};", literal(1.0 / largest_packed, DType::f32));
    shader.line("return select({}(scale) >> 16u, 0u, bitcast<u32>(scale) < 0x00800000u);", shader.use("round_bf16"));
    shader.end_function();
  }

  // Declares a word of a packed row, of four features or of two scales, and returns its name.
  std::string packed_word(Shader& shader, const std::vector<std::string>& indices) {
    const std::int64_t size = values_.shape[3].value(), bytes = size / features_per_word;
    const std::int64_t groups = detail::divide_up(size, features_per_scale);
    const auto scale = [&](const std::string& number) {
      return fmt::format("group_scale({}, {}, {}, {})", indices[0], indices[1], indices[2], number);
    };
    shader.line("let word = {}; var packed = 0u;", indices[3]);
    shader.open("if (word < {}u) {{", bytes);
    shader.line("let bits = {};", scale(fmt::format("word / {}u", features_per_scale / features_per_word)));
    shader.open("if (bits != 0u && bits != {}u) {{", not_a_number);
    std::string features[features_per_word];
    for (int i = 0; i < features_per_word; ++i)
      features[i] = shader.load(values_, {indices[0], indices[1], indices[2], fmt::format("(word * 4u + {}u)", i)});
    shader.line("let four = vec4f({}, {}, {}, {});", features[0], features[1], features[2], features[3]);
    shader.line("let rounded = vec4u(vec4i(round(four / bitcast<f32>(bits << 16u)))) & vec4u(0xffu);");
    shader.line("packed = rounded.x | (rounded.y << 8u) | (rounded.z << 16u) | (rounded.w << 24u);");
    shader.close();
    shader.otherwise();
    shader.line("let number = (word - {}u) * 2u;", bytes);
    shader.line("packed = {};", scale("number"));
    shader.line("if (number + 1u < {}u) {{ packed |= {} << 16u; }}", groups, scale("number + 1u"));
    shader.close();
    return "packed";
  }

  // A workgroup for each position, whose threads scan the later ones.
  int write_slots() {
    constexpr int threads = 64;
    const Dim count = values_.shape[0] * time_;
    const int slots = writer_.workspace(DType::u32, count);
    Shader shader = writer_.shader("cache_slots", threads);
    shader.line("let batch = group / {0}; let time = group % {0};", shader.size(time_));
    write_slot(shader, "batch", "time", "time + 1u + lane", threads);
    shader.shared_array("found", "u32", threads);
    shader.line("found[lane] = slot;");
    shader.barrier();
    shader.open("if (lane == 0u) {{");
    shader.line("for (var i = 1u; i < {}u; i++) {{ slot = max(slot, found[i]); }}", threads);
    shader.store(slots, "group", "slot");
    shader.close();
    writer_.add(std::move(shader), count);
    return slots;
  }

  // Declares `slot`: where the value of a position goes; the largest number if nowhere. Compares it with every step-th
  // later position from `first` on.
  void write_slot(Shader& shader, const std::string& batch, const std::string& time, const std::string& first,
                  int step) {
    const std::string capacity = shader.size(capacity_);
    shader.declare("const none = 0xffffffffu;\n");
    const auto slot_at = [&](const std::string& at) {
      const std::string position = shader.let("position", fmt::format("u32({})", shader.load(positions_, {batch, at})));
      const bool ring = std::get<CacheAppendAttrs>(writer_.kernel().attrs).ring;
      const std::string is_none = positions_.dtype == DType::i32 ? fmt::format("{} >= 0x80000000u", position) : "false";
      const std::string slot = ring ? fmt::format("{} % max({}, 1u)", position, capacity) : position;
      return shader.let("slot", fmt::format("select({0}, none, {1} || {0} >= {2})", slot, is_none, capacity));
    };
    const std::string this_slot = slot_at(time);
    shader.line("var slot = {};", this_slot);
    shader.open("for (var later = {}; later < {}; later += {}u) {{", first, shader.size(time_), step);
    const std::string other = slot_at("later");
    shader.line("if ({} == {}) {{ slot = none; break; }}", other, this_slot);
    shader.close();
  }

  static constexpr std::uint32_t not_a_number = 0x7fc0;  // in bf16
  KernelWriter& writer_;
  const TensorAccess &values_, &positions_, &table_, &out_;
  Dim time_, capacity_;
};

}  // namespace

template <>
void write_whole_op<Op::cache_append>(KernelWriter& writer) {
  CacheAppend(writer).write();
}

}  // namespace jerboa::wgsl
