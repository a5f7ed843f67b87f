#pragma once

#include <memory>
#include <optional>
#include <string>

#include <jerboa/language/text_encoder.h>

#include "cli/language_options.h"
#include "memory/document_memory.h"

namespace jerboa::cli {

/// The model of memories that do not have one yet.
inline constexpr const char* usual_memory_model = "minilm";

/// Where the memory is by default: in the store's folder.
std::filesystem::path usual_memory_path();

/// How a memory is opened, with the model that its vectors come from.
struct MemoryFlags {
  std::string path, model;
  ModelFlags loading;

  void add_path_to(CLI::App& command);
  void add_model_to(CLI::App& command);
  void check() const;
  memory::DocumentMemory open(memory::DocumentMemory::Access access) const;
  /// The model that was named or, without one, that of the memory.
  std::unique_ptr<memory::Encoder> open_encoder(const memory::DocumentMemory& memory) const;
};

}  // namespace jerboa::cli
