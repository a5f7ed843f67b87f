#include "wgsl/shader_text.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include <jerboa/base/error.h>

#include "base/integers.h"
#include "wgsl/functions.h"

namespace jerboa::wgsl {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_'; }

// The identifiers after each occurrence of a keyword.
std::vector<std::string> names_after(const std::string& text, std::string_view keyword) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(keyword); at != std::string::npos; at = text.find(keyword, at + 1)) {
    std::size_t end = at + keyword.size();
    while (end < text.size() && is_word(text[end])) ++end;
    names.push_back(text.substr(at + keyword.size(), end - at - keyword.size()));
  }
  return names;
}

constexpr const char* parameters = "group: u32, lane: u32";

}  // namespace

// Every shader passes through here, which once took a tenth of the compiler's time: unchanged text is copied in one
// piece, and numbers are not looked up.
std::string renamed(std::string_view text, const Names& names) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  std::size_t copied = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      ++at;
      continue;
    }
    const std::size_t start = at;
    while (at < text.size() && is_word(text[at])) ++at;
    if (is_digit(text[start]) || (start > 0 && text[start - 1] == '.')) continue;
    const auto found = names.find(text.substr(start, at - start));
    if (found == names.end()) continue;
    result += text.substr(copied, start - copied);
    result += found->second;
    copied = at;
  }
  result += text.substr(copied);
  return result;
}

std::string with_sizes_from(const std::string& text, std::size_t first) {
  constexpr std::string_view sizes = "sizes[";
  std::string result;
  std::size_t at = 0;
  for (std::size_t next = text.find(sizes); next != std::string::npos; next = text.find(sizes, at)) {
    result.append(text, at, next + sizes.size() - at);
    at = next + sizes.size();
    std::size_t number = 0;
    for (; text[at] != ']'; ++at) number = number * 10 + static_cast<std::size_t>(text[at] - '0');
    result += std::to_string(number + first);
  }
  return result + text.substr(at);
}

std::string merged_name(const ShaderText::WorkgroupArray& array) {
  std::string name = array.name;
  for (const char c : array.type)
    if (is_word(c)) name += c;
  return name;
}

std::string subgroup_parameters(const ShaderText& text, const char* format) {
  std::string list;
  if (text.uses_subgroups) list += fmt::format(fmt::runtime(format), "subgroup_lane");
  if (text.uses_subgroup_matrices) list += fmt::format(fmt::runtime(format), "subgroup");
  return list;
}

void rename_declared(const ShaderText& text, const std::string& prefix, Names& names) {
  for (const char* keyword : {"fn ", "const ", "var<private> "})
    for (const std::string& name : names_after(text.functions, keyword)) names[name] = prefix + name;
}

std::string enabled_features(const ShaderText& text) {
  std::string lines;
  if (text.uses_f16) lines += "enable f16;\n";
  if (text.uses_subgroups) lines += "enable subgroups;\n";
  // The compiler cannot tell that the subgroup index is uniform within a subgroup.
  if (text.uses_subgroup_matrices)
    lines += "enable chromium_experimental_subgroup_matrix;\ndiagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  return lines;
}

std::int64_t element_bytes(const std::string& type) {
  if (type == "vec4f" || type == "vec4u" || type == "vec4i" || type == "vec4<f32>") return 16;
  if (type == "vec2f" || type == "vec2u" || type == "vec2i" || type == "vec4<f16>") return 8;
  if (type == "f16") return 2;
  if (type == "f32" || type == "u32" || type == "i32" || type == "bool" || type == "vec2<f16>" || type == "atomic<u32>")
    return 4;
  throw GraphError(fmt::format("internal: the size of {} is unknown", type));
}

std::int64_t workgroup_array_bytes(const std::string& type, std::int64_t count) {
  return detail::round_up(element_bytes(type) * count, 16);
}

std::int64_t workgroup_bytes(const std::vector<ShaderText::WorkgroupArray>& arrays) {
  std::int64_t bytes = 0;
  for (const ShaderText::WorkgroupArray& array : arrays) bytes += array.bytes;
  return bytes;
}

std::vector<ShaderText::WorkgroupArray> shared(const std::vector<ShaderText::WorkgroupArray>& some,
                                               const std::vector<ShaderText::WorkgroupArray>& others) {
  std::vector<ShaderText::WorkgroupArray> all = some;
  for (const ShaderText::WorkgroupArray& other : others) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const ShaderText::WorkgroupArray& array) {
      return array.name == other.name && array.type == other.type;
    });
    if (known == all.end())
      all.push_back(other);
    else if (known->count < other.count)
      *known = other;
  }
  return all;
}

std::string assemble(const ShaderText& text, int threads) {
  std::string source = enabled_features(text);
  for (std::size_t i = 0; i < text.buffers.size(); ++i)
    source +=
        fmt::format("@group(0) @binding({}) var<storage, {}> {}: array<{}>;\n", i,
                    text.buffers[i].read_write ? "read_write" : "read", text.buffers[i].name, text.buffers[i].element);
  if (text.size_vectors > 0)
    source += fmt::format("@group(0) @binding({}) var<uniform> sizes: array<vec4u, {}>;\n", text.buffers.size(),
                          text.size_vectors);
  for (const ShaderText::WorkgroupArray& array : text.workgroup_memory)
    source += fmt::format("var<workgroup> {}: array<{}, {}>;\n", array.name, array.type, array.count);
  source += function_texts(text.library) + text.functions;
  source += fmt::format(
      "@compute @workgroup_size({})\n"
      "fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) workgroups: vec3u,\n"
      "        @builtin(local_invocation_index) lane: u32{}{}) {{\n"
      "  let group = workgroup.x + workgroup.y * workgroups.x;\n",
      threads, text.uses_subgroups ? ", @builtin(subgroup_invocation_id) subgroup_lane: u32" : "",
      text.uses_subgroup_matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
  return source + text.body + "}\n";
}

bool has_independent_threads(const ShaderText& text) {
  return text.workgroup_memory.empty() && !text.uses_subgroups && !text.uses_subgroup_matrices &&
         text.body.find("Barrier(") == std::string::npos && text.functions.find("Barrier(") == std::string::npos;
}

bool waits_in_loops(const ShaderText& text) {
  const std::string all = text.functions + "fn main() {\n" + text.body + "}\n";
  std::set<std::string, std::less<>> waiting;  // functions, each declared before its callers
  std::string function;
  std::vector<bool> is_loop;  // by open block
  bool is_named_next = false, is_loop_next = false;
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (all[at] == '{') is_loop.push_back(std::exchange(is_loop_next, false));
    if (all[at] == '}') is_loop.pop_back();
    if (!is_word(all[at])) continue;
    const std::size_t start = at;
    while (is_word(all[at + 1])) ++at;
    const std::string_view word = std::string_view(all).substr(start, at + 1 - start);
    if (std::exchange(is_named_next, word == "fn")) {
      function = word;
    } else if (word.ends_with("Barrier") || waiting.contains(word)) {
      if (std::find(is_loop.begin(), is_loop.end(), true) != is_loop.end()) return true;
      waiting.insert(function);
    }
    is_loop_next |= word == "for" || word == "while" || word == "loop";
  }
  return false;
}

ShaderText merge(const std::vector<ShaderPart>& parts) {
  ShaderText merged;
  std::string first = "0u";
  for (std::size_t number = 0; number < parts.size(); ++number) {
    const ShaderPart& part = parts[number];
    const ShaderText& text = *part.text;
    Names names;
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      const auto binding = static_cast<std::size_t>(part.bindings[i]);
      if (merged.buffers.size() <= binding) merged.buffers.resize(binding + 1);
      const std::string name = fmt::format("bound_{}", binding);
      const ShaderText::Buffer& buffer = text.buffers[i];
      ShaderText::Buffer& shared_buffer = merged.buffers[binding];
      shared_buffer.name = name;
      shared_buffer.element = buffer.element;
      shared_buffer.read_write = buffer.read_write;
      names[buffer.name] = name;
      if constexpr (has_phases) {
        if (!buffer.read_at.empty()) names[buffer.read_at] = shared_buffer.read_at = "read_at_" + name;
        shared_buffer.staged = std::max(shared_buffer.staged, buffer.staged);
        shared_buffer.is_read_elsewhere |= buffer.is_read_elsewhere;
        if (buffer.staged > 0) names["staged_" + buffer.name] = "staged_" + name;
        if (!buffer.write_at.empty()) names[buffer.write_at] = shared_buffer.write_at = "write_at_" + name;
      }
    }
    rename_declared(text, fmt::format("part_{}_", number), names);
    for (const ShaderText::WorkgroupArray& array : text.workgroup_memory) names[array.name] = merged_name(array);
    merged.workgroup_memory = shared(merged.workgroup_memory, text.workgroup_memory);
    merged.library.insert(text.library.begin(), text.library.end());
    if constexpr (has_phases) merged.loops_over_data |= text.loops_over_data;
    merged.uses_f16 |= text.uses_f16;
    merged.uses_subgroups |= text.uses_subgroups;
    merged.uses_subgroup_matrices |= text.uses_subgroup_matrices;
    merged.functions += renamed(with_sizes_from(text.functions, part.first_size), names);
    merged.functions +=
        fmt::format("fn part_{}({}{}) {{\n{}}}\n", number, parameters, subgroup_parameters(text, ", {}: u32"),
                    renamed(with_sizes_from(text.body, part.first_size), names));
    const std::string end = number == 0 ? part.workgroups : fmt::format("({} + {})", first, part.workgroups);
    const std::string part_group = number == 0 ? "group" : fmt::format("(group - {})", first);
    std::string call = fmt::format("part_{}({}, lane{});", number, part_group, subgroup_parameters(text, ", {}"));
    if (part.split > 1) {
      const std::string split = fmt::format("{} * {}u + lane / {}u", part_group, part.split, part.threads);
      call = fmt::format("if ({0} < {1}) {{ part_{2}({0}, lane % {3}u); }}", split, part.original_workgroups, number,
                         part.threads);
    }
    merged.body += fmt::format("  {}if (group < {}) {{ {} }}\n", number == 0 ? "" : "else ", end, call);
    first = end;
  }
  for (ShaderText::WorkgroupArray& array : merged.workgroup_memory) array.name = merged_name(array);
  return merged;
}

}  // namespace jerboa::wgsl
