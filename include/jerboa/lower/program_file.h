#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa {

/// A parameter or state that programs share.
struct PersistentTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  bool is_param = false;
  Init init;
};
struct InputTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};
struct ProgramEntry {
  std::string name;  ///< "step", "eval", "prefill", "decode" …
  std::vector<InputTensor> inputs;
  Program program;
};

/// Several programs over one storage, in one file that any host can load: it needs neither the graph nor the compiler.
struct ProgramFile {
  std::string target = "cpu";
  std::vector<PersistentTensor> storage;
  std::vector<ProgramEntry> entries;
};

/// Written atomically.
void save_program(const std::filesystem::path& path, const ProgramFile& file);
/// Throws FileError that says what is wrong with a file that is damaged or of another version.
ProgramFile load_program(const std::filesystem::path& path);

}  // namespace jerboa
