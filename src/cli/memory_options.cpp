#include "cli/memory_options.h"

#include <cmath>
#include <filesystem>

#include "cli/encoder_options.h"
#include "cli/store.h"

namespace jerboa::cli {
namespace {

// A model as a memory's encoder: vectors of length 1 whatever the model's folder says, and its prompts for documents
// and queries.
class MemoryEncoder final : public memory::Encoder {
 public:
  MemoryEncoder(std::string name, TextEncoder encoder)
      : name_(std::move(name)), encoder_(std::move(encoder)), tokenizer_(encoder_.tokenizer()) {
    tokenizer_.set_truncation({});
    tokenizer_.set_padding({});
  }

  std::string name() const override { return name_; }
  std::int64_t dimensions() const override { return encoder_.dimensions(); }
  std::int64_t context() const override { return encoder_.context(); }
  std::int64_t count_tokens(std::string_view text) const override {
    return std::ssize(tokenizer_.encode(text, {.add_special = false}).ids);
  }
  std::vector<float> encode_documents(std::span<const std::string> texts) override {
    return encoder_.embed(texts, {.prompt_name = encoder_.document_prompt(), .normalise = true}).values;
  }
  std::vector<float> encode_query(const std::string& text) override {
    return encoder_.embed({text}, {.prompt_name = encoder_.query_prompt(), .normalise = true}).values;
  }

 private:
  std::string name_;
  TextEncoder encoder_;
  Tokenizer tokenizer_;  // neither truncates nor pads
};

}  // namespace

std::filesystem::path usual_memory_path() { return home_folder() / "memory.sqlite"; }

void MemoryFlags::add_path_to(CLI::App& command) {
  command.add_option("--memory", path, "The memory's file; by default memory.sqlite in the folder of pulled models");
}

void MemoryFlags::add_model_to(CLI::App& command) {
  command.add_option("--model", model,
                     "The encoder that turns texts into vectors, as a name or path; by default the one that the memory "
                     "was made with, or minilm");
  loading.add_to(command, "Maximum tokens of a text; by default the limit in the model's folder");
}

void MemoryFlags::check() const { loading.check(); }

memory::DocumentMemory MemoryFlags::open(memory::DocumentMemory::Access access) const {
  return memory::DocumentMemory(path.empty() ? usual_memory_path() : std::filesystem::path(path), access);
}

std::unique_ptr<memory::Encoder> MemoryFlags::open_encoder(const memory::DocumentMemory& memory) const {
  const std::string known = memory.model();
  EncoderFlags flags{.model = !model.empty() ? model : !known.empty() ? known : usual_memory_model, .loading = loading};
  // A memory may be used from other folders, so paths are made absolute.
  const bool is_path = std::filesystem::exists(flags.model);
  const std::string name = is_path ? std::filesystem::canonical(flags.model).string() : flags.model;
  return std::make_unique<MemoryEncoder>(name, flags.open());
}

}  // namespace jerboa::cli
