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

/// Whether steps can be phases of one dispatch. Not in browsers, to keep the compiler's WASM small.
inline constexpr bool has_phases = !detail::is_browser_build;

/// A shader that does nothing but combine the parts of attention; a phase that copies the results to workgroup memory
/// can do that instead. The first members are buffers of the shader.
struct Combination {
  int sums = 0;  ///< [query, part, feature]
  int rows = 0;  ///< [query, part, 2]: the greatest score and the sum of the weights
  int out = 0;   ///< the results
  int lse = 0;   ///< the logarithms of the sums, which training reads
  std::int64_t queries = 0, parts = 0, size = 0;
  DType dtype = DType::f32;  ///< of the results
};

/// The parts of a shader's text, kept separate so that shaders can be merged.
struct ShaderText {
  struct Buffer {
    std::string name, element;  ///< of its array
    bool read_write = false;
    /// In phases of a dispatch: private variables that hold where it begins in the array; for passed words, where reads
    /// and where writes begin, empty if there are none.
    std::string read_at = {}, write_at = {};
    /// Elements that a phase copies to the array `staged` of vec4f, from staged_NAME on, before it begins.
    std::int64_t staged = 0;
    bool is_read_elsewhere = false;  ///< some reads do not use the staged copy
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
  bool loops_over_data = false;  ///< whether data that it reads bounds some loops
  std::optional<Combination> combination = {};
};

/// The bytes of an element of an array of this type, and of such an array in workgroup memory.
std::int64_t element_bytes(const std::string& type);
std::int64_t workgroup_array_bytes(const std::string& type, std::int64_t count);
std::int64_t workgroup_bytes(const std::vector<ShaderText::WorkgroupArray>& arrays);
/// The combined workgroup memory of parts of a shader, of which a workgroup runs only one: arrays of one name and type
/// share the largest.
std::vector<ShaderText::WorkgroupArray> shared(const std::vector<ShaderText::WorkgroupArray>& some,
                                               const std::vector<ShaderText::WorkgroupArray>& others);

/// The source of the shader, with this many threads per workgroup.
std::string assemble(const ShaderText& text, int threads);

/// A shader in a merged one, which runs it in a part of the workgroups.
struct ShaderPart {
  const ShaderText* text = nullptr;
  std::vector<int> bindings;   ///< of the merged shader, by the text's buffer
  std::size_t first_size = 0;  ///< where its sizes begin, in vec4u
  std::string workgroups;      ///< WGSL expression of the number of its workgroups in the merged shader
  /// For a shader with independent threads: how many of its original workgroups run in one of these, their threads, and
  /// a WGSL expression of their total number.
  int split = 1, threads = 0;
  std::string original_workgroups = {};
};

/// Whether the threads of a workgroup neither wait for each other nor exchange values.
bool has_independent_threads(const ShaderText& text);

/// Whether threads wait for each other in a loop, or in a function called from one.
bool waits_in_loops(const ShaderText& text);

ShaderText merge(const std::vector<ShaderPart>& parts);

using Names = std::map<std::string, std::string, std::less<>>;
/// Replaces whole identifiers that are not fields.
std::string renamed(std::string_view text, const Names& names);
/// Adds new names for the identifiers that a text declares, beginning with `prefix`.
void rename_declared(const ShaderText& text, const std::string& prefix, Names& names);
/// "sizes[2]" becomes "sizes[2 + first]".
std::string with_sizes_from(const std::string& text, std::size_t first);
/// The name encodes the element type, so that arrays of one name and type are shared.
std::string merged_name(const ShaderText::WorkgroupArray& array);
/// The subgroup values that main needs, in this format: ", {}" for arguments.
std::string subgroup_parameters(const ShaderText& text, const char* format);
/// The lines that enable the features that a shader uses.
std::string enabled_features(const ShaderText& text);

}  // namespace jerboa::wgsl
