#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace jerboa::wgsl {

/// The parts of a shader's text, kept apart so that shaders can be merged.
struct ShaderText {
  struct Buffer {
    std::string name, element;  ///< of an array
    bool read_write = false;
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
};

/// In bytes.
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
  std::string workgroups;      ///< WGSL expression of their number
};
ShaderText merge(const std::vector<ShaderPart>& parts);

}  // namespace jerboa::wgsl
