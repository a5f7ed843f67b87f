#include "wgsl/shader_text.h"

#include <cctype>
#include <fmt/format.h>
#include <map>
#include <sstream>

#include "wgsl/functions.h"

namespace jerboa::wgsl {
namespace {

using Names = std::map<std::string, std::string, std::less<>>;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Replaces whole identifiers that are not fields.
std::string renamed(const std::string& text, const Names& names) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_word(text[at])) {
      result += text[at++];
      continue;
    }
    const std::size_t start = at;
    while (at < text.size() && is_word(text[at])) ++at;
    const std::string_view word(text.data() + start, at - start);
    const auto found = start > 0 && text[start - 1] == '.' ? names.end() : names.find(word);
    result += found == names.end() ? word : std::string_view(found->second);
  }
  return result;
}

// The words after each occurrence of a keyword.
std::vector<std::string> names_after(const std::string& text, std::string_view keyword) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(keyword); at != std::string::npos; at = text.find(keyword, at + 1)) {
    std::size_t end = at + keyword.size();
    while (end < text.size() && is_word(text[end])) ++end;
    names.push_back(text.substr(at + keyword.size(), end - at - keyword.size()));
  }
  return names;
}

// "sizes[2]" becomes "sizes[2 + first]".
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

constexpr const char* parameters = "group: u32, lane: u32";

// What main takes from the subgroup, as parameters or as arguments.
std::string subgroup_parameters(const ShaderText& text, const char* format) {
  std::string list;
  if (text.uses_subgroups) list += fmt::format(fmt::runtime(format), "subgroup_lane");
  if (text.uses_subgroup_matrices) list += fmt::format(fmt::runtime(format), "subgroup");
  return list;
}

}  // namespace

std::string assemble(const ShaderText& text, int threads) {
  std::string source;
  if (text.uses_f16) source += "enable f16;\n";
  if (text.uses_subgroups) source += "enable subgroups;\n";
  // The compiler cannot tell that the subgroup index is uniform within a subgroup.
  if (text.uses_subgroup_matrices)
    source += "enable chromium_experimental_subgroup_matrix;\ndiagnostic(off, chromium.subgroup_matrix_uniformity);\n";
  for (std::size_t i = 0; i < text.buffers.size(); ++i)
    source +=
        fmt::format("@group(0) @binding({}) var<storage, {}> {}: array<{}>;\n", i,
                    text.buffers[i].read_write ? "read_write" : "read", text.buffers[i].name, text.buffers[i].element);
  if (text.size_vectors > 0)
    source += fmt::format("@group(0) @binding({}) var<uniform> sizes: array<vec4u, {}>;\n", text.buffers.size(),
                          text.size_vectors);
  source += text.workgroup_memory + function_texts(text.library) + text.functions;
  source += fmt::format(
      "@compute @workgroup_size({})\n"
      "fn main(@builtin(workgroup_id) workgroup: vec3u, @builtin(num_workgroups) workgroups: vec3u,\n"
      "        @builtin(local_invocation_index) lane: u32{}{}) {{\n"
      "  let group = workgroup.x + workgroup.y * workgroups.x;\n",
      threads, text.uses_subgroups ? ", @builtin(subgroup_invocation_id) subgroup_lane: u32" : "",
      text.uses_subgroup_matrices ? ", @builtin(subgroup_id) subgroup: u32" : "");
  return source + text.body + "}\n";
}

ShaderText merge(const std::vector<ShaderPart>& parts) {
  ShaderText merged;
  std::set<std::string> arrays;  // of workgroup memory: parts share those that are declared alike
  std::string first = "0u";
  for (std::size_t number = 0; number < parts.size(); ++number) {
    const ShaderPart& part = parts[number];
    const ShaderText& text = *part.text;
    Names names;
    for (std::size_t i = 0; i < text.buffers.size(); ++i) {
      const auto binding = static_cast<std::size_t>(part.bindings[i]);
      if (merged.buffers.size() <= binding) merged.buffers.resize(binding + 1);
      const std::string name = fmt::format("bound_{}", binding);
      merged.buffers[binding] = {name, text.buffers[i].element, text.buffers[i].read_write};
      names[text.buffers[i].name] = name;
    }
    for (const char* keyword : {"fn ", "const ", "var<private> "})
      for (const std::string& name : names_after(text.functions, keyword))
        names[name] = fmt::format("part_{}_{}", number, name);
    std::istringstream lines(text.workgroup_memory);
    for (std::string line; std::getline(lines, line);) {
      const std::string name = names_after(line, "var<workgroup> ").front();
      // The name says what it is declared as, so that equal declarations meet.
      std::string own = name;
      for (const char c : line.substr(line.find(':')))
        if (is_word(c)) own += c;
      names[name] = own;
      arrays.insert(renamed(line, names) + "\n");
    }
    merged.library.insert(text.library.begin(), text.library.end());
    merged.uses_f16 |= text.uses_f16;
    merged.uses_subgroups |= text.uses_subgroups;
    merged.uses_subgroup_matrices |= text.uses_subgroup_matrices;
    merged.functions += renamed(with_sizes_from(text.functions, part.first_size), names);
    merged.functions +=
        fmt::format("fn part_{}({}{}) {{\n{}}}\n", number, parameters, subgroup_parameters(text, ", {}: u32"),
                    renamed(with_sizes_from(text.body, part.first_size), names));
    const std::string end = number == 0 ? part.workgroups : fmt::format("({} + {})", first, part.workgroups);
    const std::string call = fmt::format("part_{}({}, lane{});", number,
                                         number == 0 ? std::string("group") : fmt::format("group - {}", first),
                                         subgroup_parameters(text, ", {}"));
    merged.body += fmt::format("  {}if (group < {}) {{ {} }}\n", number == 0 ? "" : "else ", end, call);
    first = end;
  }
  for (const std::string& declaration : arrays) merged.workgroup_memory += declaration;
  return merged;
}

}  // namespace jerboa::wgsl
