#include "wgsl/row_reduction.h"

#include "wgsl/body.h"

namespace jerboa::wgsl {

int lanes_for(std::int64_t elements, const Target& target) {
  const int most = target.software ? 16 : target.max_invocations;
  int lanes = 1;
  while (lanes < most && std::int64_t{lanes} * 4 < elements) lanes *= 2;
  return lanes;
}

RowReduction::RowReduction(Shader& shader, Op op, DType dtype, int width)
    : shader_(shader),
      op_(op),
      dtype_(dtype),
      type_(width == 4             ? "vec4f"
            : op == Op::all_finite ? "bool"
                                   : value_type(dtype)) {
  const std::string none = neutral(op, dtype);
  total_ = shader_.var("total", type_, width == 4 ? fmt::format("vec4f({})", none) : none);
  // No element yet: an index greater than all others, so that ties with the identity give the first element.
  if (op == Op::argmax) index_ = shader_.var("place", "u32", "0xffffffffu");
}

void RowReduction::add(const std::string& value, const std::string& index) {
  if (op_ == Op::argmax) {
    shader_.line("if ({0} > {1} || {2} == 0xffffffffu) {{ {1} = {0}; {2} = {3}; }}", value, total_, index_, index);
  } else if (op_ == Op::all_finite) {
    const std::string finite =
        is_float(dtype_) ? fmt::format("((bitcast<u32>({}) & 0x7f800000u) != 0x7f800000u)", value) : "true";
    shader_.line("{0} = {0} && {1};", total_, finite);
  } else {
    combine_with(value);
  }
}

void RowReduction::combine_with(const std::string& part) {
  shader_.line("{} = {};", total_, combine(op_, dtype_, total_, part));
}

void RowReduction::add_four(const std::array<std::string, 4>& values, const std::string& first) {
  if (has(op_, Trait::Folds)) {
    // As a tree: a chain of additions would wait for each.
    const std::string low = combine(op_, dtype_, values[0], values[1]),
                      high = combine(op_, dtype_, values[2], values[3]);
    return add(combine(op_, dtype_, low, high), first);
  }
  for (std::size_t k = 0; k < 4; ++k) add(values[k], k == 0 ? first : fmt::format("{} + {}u", first, k));
}

bool RowReduction::can_use_subgroups(int lanes, int stride) const {
  const int size = shader_.target().subgroup_size;
  return size > 1 && lanes >= size && lanes % size == 0 && stride == 1 && has(op_, Trait::Folds);
}

// The threads of a subgroup combine their parts without memory; then each thread combines the results of the row's
// subgroups, which are few.
std::string RowReduction::finish_by_subgroups(int lanes, int threads) {
  shader_.use_subgroups();
  const int size = shader_.target().subgroup_size, subgroups = lanes / size;
  const char* function = op_ == Op::sum ? "subgroupAdd" : op_ == Op::max ? "subgroupMax" : "subgroupMin";
  std::string part = shader_.let("part", fmt::format("{}({})", function, total_));
  if (subgroups == 1) return part;
  const std::string parts = shader_.fresh("parts"), first = shader_.fresh("first");
  shader_.shared_array(parts, type_, threads / size);
  shader_.line("if (subgroup_lane == 0u) {{ {}[lane / {}u] = {}; }}", parts, size, part);
  shader_.barrier();
  shader_.line("let {} = lane / {}u * {}u;", first, lanes, subgroups);
  std::string all = fmt::format("{}[{}]", parts, first);
  for (int i = 1; i < subgroups; ++i)
    all = shader_.let("all", combine(op_, dtype_, all, fmt::format("{}[{} + {}u]", parts, first, i)));
  return all;
}

std::string RowReduction::finish(int lanes, const std::string& lane, int threads, int stride) {
  const bool places = op_ == Op::argmax;
  if (can_use_subgroups(lanes, stride)) return finish_by_subgroups(lanes, threads);
  if (lanes > 1) {
    const std::string parts = shader_.fresh("parts"), part_places = shader_.fresh("part_places");
    // A bool occupies a u32 in workgroup memory.
    const bool boolean = type_ == "bool";
    shader_.shared_array(parts, boolean ? "u32" : type_, threads);
    if (places) shader_.shared_array(part_places, "u32", threads);
    const auto put = [&] {
      shader_.line("{}[lane] = {};", parts, boolean ? fmt::format("select(0u, 1u, {})", total_) : total_);
      if (places) shader_.line("{}[lane] = {};", part_places, index_);
    };
    put();
    for (int step = lanes / 2; step > 0; step /= 2) {
      shader_.barrier();
      shader_.open("if ({} < {}u) {{", lane, step);
      const std::string other = fmt::format("{}[lane + {}u]", parts, step * stride);
      if (places) {
        const std::string place = fmt::format("{}[lane + {}u]", part_places, step * stride);
        shader_.line("let other = {}; let other_place = {};", other, place);
        shader_.line(
            "if (other_place != 0xffffffffu && ({1} == 0xffffffffu || other > {0} || (other == {0} && other_place < "
            "{1}))) "
            "{{ {0} = other; {1} = other_place; }}",
            total_, index_);
      } else {
        shader_.line("{} = {};", total_, combine(op_, dtype_, total_, boolean ? "(" + other + " != 0u)" : other));
      }
      put();
      shader_.close();
    }
    shader_.barrier();
    const std::string first =
        stride == 1 ? fmt::format("lane - {}", lane) : fmt::format("lane - {} * {}u", lane, stride);
    const std::string result = places ? part_places : parts;
    std::string text = fmt::format("{}[{}]", result, first);
    if (boolean) text = fmt::format("({} != 0u)", text);
    if (places) text = fmt::format("i32(select({0}, 0u, {0} == 0xffffffffu))", text);
    return shader_.let("reduced", text);
  }
  if (places) return shader_.let("reduced", fmt::format("i32(select({0}, 0u, {0} == 0xffffffffu))", index_));
  return shader_.let("reduced", total_);
}

}  // namespace jerboa::wgsl
