#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/dtype.h>

#include "base/browser_build.h"

namespace jerboa::wgsl {

/// Whether steps can be phases of one dispatch. Not in browsers, whose compiler need not carry what that takes.
inline constexpr bool has_phases = !detail::is_browser_build;

/// What a shader does that only puts the parts of attention together; a phase that copies the results to workgroup
/// memory can do it instead. The first members are buffers of the shader.
struct Combination {
  int sums = 0;  ///< [query, part, feature]
  int rows = 0;  ///< [query, part, 2]: the greatest score and the sum of the weights
  int out = 0;   ///< the results
  int lse = 0;   ///< the logarithms of the sums, which training reads
  std::int64_t queries = 0, parts = 0, size = 0;
  DType dtype = DType::f32;  ///< of the results
};

/// The parts of a shader's text, kept apart so that shaders can be merged.
struct ShaderText {
  struct Buffer {
    std::string name, element;  ///< of an array
    bool read_write = false;
    /// In phases of a dispatch, private variables that say where it begins in the array, of words that are passed where
    /// what is read does and where what is written does; empty if nothing is.
    std::string read_at = {}, write_at = {};
    /// Elements that a phase copies to the array `staged` of vec4f, from staged_NAME on, before it begins.
    std::int64_t staged = 0;
    bool is_read_elsewhere = false;  ///< some of what is read is not read from there
    bool is_passed() const { return element == "passed"; }
  };
  std::vector<Buffer> buffers;   ///< by binding
  std::size_t size_vectors = 0;  ///< length of the uniform buffer `sizes`, in vec4u
  struct WorkgroupArray {
    std::string name, type;  ///< of its elements
    std::int64_t count = 0, bytes = 0;
  };
  std::vector<WorkgroupArray> workgroup_memory;
  std::set<std::string> library;  ///< functions of wgsl/functions.h
  std::string functions;
  std::string body;  ///< of main, in terms of group, lane, subgroup_lane and subgroup
  bool uses_f16 = false, uses_subgroups = false, uses_subgroup_matrices = false;
  bool loops_over_data = false;  ///< whether what it reads says how far some loops go
  std::optional<Combination> combination = {};
};

/// The bytes of an element of an array of this type, and of such an array in workgroup memory.
std::int64_t element_bytes(const std::string& type);
std::int64_t workgroup_array_bytes(const std::string& type, std::int64_t count);
std::int64_t workgroup_bytes(const std::vector<ShaderText::WorkgroupArray>& arrays);
/// What parts of a shader need, of which a workgroup runs only one: those of one name and type share the largest.
std::vector<ShaderText::WorkgroupArray> shared(const std::vector<ShaderText::WorkgroupArray>& some,
                                               const std::vector<ShaderText::WorkgroupArray>& others);

/// The source of the shader, with this many threads in a workgroup.
std::string assemble(const ShaderText& text, int threads);

/// A shader that does what several do, each with its part of the workgroups.
struct ShaderPart {
  const ShaderText* text = nullptr;
  std::vector<int> bindings;   ///< of the merged shader, for each of its buffers
  std::size_t first_size = 0;  ///< where its sizes begin, in vec4u
  std::string workgroups;      ///< WGSL expression of their number in the merged shader
  /// Its own workgroups in one of these, for a shader whose threads do not depend on each other, their threads, and a
  /// WGSL expression of the number of all of them.
  int split = 1, threads = 0;
  std::string own_workgroups = {};
};

/// Whether the threads of a workgroup neither wait for each other nor exchange values.
bool has_independent_threads(const ShaderText& text);

/// Whether threads wait for each other in a loop, or in a function that one calls.
bool waits_in_loops(const ShaderText& text);

ShaderText merge(const std::vector<ShaderPart>& parts);

using Names = std::map<std::string, std::string, std::less<>>;
/// Replaces whole identifiers that are not fields.
std::string renamed(std::string_view text, const Names& names);
/// New names for what a text declares itself, beginning with `prefix`.
void rename_declared(const ShaderText& text, const std::string& prefix, Names& names);
/// "sizes[2]" becomes "sizes[2 + first]".
std::string with_sizes_from(const std::string& text, std::size_t first);
/// The name says what the elements are, so that arrays of one name and type meet.
std::string merged_name(const ShaderText::WorkgroupArray& array);
/// What main takes from the subgroup, in this format: ", {}" for arguments.
std::string subgroup_parameters(const ShaderText& text, const char* format);
/// The lines that enable what a shader uses.
std::string enabled_features(const ShaderText& text);

}  // namespace jerboa::wgsl
