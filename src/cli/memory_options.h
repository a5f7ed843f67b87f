#pragma once

#include <memory>
#include <optional>
#include <string>

#include <jerboa/language/text_encoder.h>

#include "cli/language_options.h"
#include "memory/document_memory.h"

namespace jerboa::cli {

/// The default model of new memories.
inline constexpr const char* usual_memory_model = "minilm";

/// The default path of the memory, in the store's folder.
std::filesystem::path usual_memory_path();

/// Flags that say how a memory is opened, and which model computes its vectors.
struct MemoryFlags {
  std::string path, model;
  ModelFlags loading;

  void add_path_to(CLI::App& command);
  void add_model_to(CLI::App& command);
  void check() const;
  memory::DocumentMemory open(memory::DocumentMemory::Access access) const;
  /// The model that the user named or, by default, the memory's own.
  std::unique_ptr<memory::Encoder> open_encoder(const memory::DocumentMemory& memory) const;
};

}  // namespace jerboa::cli
