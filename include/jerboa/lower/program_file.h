#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/lower/program.h>
#include <jerboa/transform/checks.h>

namespace jerboa {

/// A parameter or state that programs share.
struct PersistentTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  bool is_param = false;
  Init init;
};
/// What a host requires of an input that is a learning rate before it runs anything. A custom optimizer may want a
/// negative one.
enum class Rate : std::uint8_t { none, not_negative, finite };
struct InputTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Rate rate = Rate::none;
};
/// Elements of an input that an op uses as indices into another tensor. A host refuses values out of range before it
/// runs anything: on a GPU they would silently read another element.
struct InputIndices {
  /// A part of a list of elements, as a strided array.
  struct View {
    Shape shape;
    Dim offset = 0;
    std::vector<Dim> strides;
    friend bool operator==(const View&, const View&) = default;
  };
  std::string input;
  std::vector<View> views;  ///< each is a part of the one before, the first of the input; none: all elements
  Dim limit = 0;            ///< indices must be below it
  bool negative_is_none = false;
  Op user = Op::embedding;
  std::string site;  ///< the user's line
  friend bool operator==(const InputIndices&, const InputIndices&) = default;
};
struct ProgramEntry {
  std::string name;  ///< "step", "eval", "prefill", "decode" …
  std::vector<InputTensor> inputs;
  std::vector<InputIndices> indices;
  Program program;
  RunChecks checks = {};  ///< if it was compiled with them: their outputs are among the program's
};

/// Several programs that share storage, in one file that any host can load without the graph or the compiler.
struct ProgramFile {
  std::string target = "cpu";
  std::vector<PersistentTensor> storage;
  std::vector<ProgramEntry> entries;
};

/// The device features that a program for GPUs requires.
struct GpuRequirements {
  bool f16 = false, subgroups = false;
  std::vector<SubgroupMatrix> subgroup_matrices;
  std::int64_t buffer_bytes = 0, binding_bytes = 0, workgroup_bytes = 0;
  int bindings = 0, invocations = 0;  ///< storage buffers per shader, threads per workgroup
};
GpuRequirements gpu_requirements(const Program& program);

/// The bytes of a file; docs/program-files.md describes them.
std::string encode_program(const ProgramFile& file);
/// Checks that every access of the programs is in bounds. Throws FileError that names the file and the problem: damage,
/// another version, a feature that this version does not know.
ProgramFile decode_program(std::string_view bytes, const std::string& name);

/// Writes the file atomically.
void save_program(const std::filesystem::path& path, const ProgramFile& file);
ProgramFile load_program(const std::filesystem::path& path);

}  // namespace jerboa
