#include "language/model_files.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/family.h>
#include <jerboa/models/gguf_model.h>

#include "models/param_reads.h"

namespace jerboa::detail {
namespace {

namespace fs = std::filesystem;

// A tokenizer file may ask for truncation and padding, which are meant for batches of texts.
Tokenizer whole_texts(Tokenizer tokenizer) {
  tokenizer.set_truncation({});
  tokenizer.set_padding({});
  return tokenizer;
}

ModelFiles open_folder(const fs::path& folder) {
  models::Config config = models::Config::open(folder);
  models::family_of(config);  // throws if the family is unknown
  GenerationConfig generation = read_generation_config(folder, config);
  auto weights = std::make_unique<const SafeTensors>(SafeTensors::open(folder));
  models::check_layers(*weights, config, models::family_of(config));
  const DType usual = models::usual_weights(*weights);
  Tokenizer tokenizer = whole_texts(Tokenizer::load(folder));
  auto chat_template = ChatTemplate::is_in(folder) ? std::optional(ChatTemplate::load(folder)) : std::nullopt;
  return {std::move(config),    std::move(generation),   std::move(weights), usual,
          std::move(tokenizer), std::move(chat_template)};
}

ModelFiles open_gguf(const fs::path& path) {
  models::GgufModel file = models::read_gguf_model(Gguf::open(path));
  const auto within = [&](std::string_view part) { return fmt::format("{}: {}", path.string(), part); };
  models::Config config = models::Config::parse(file.config, path.string());
  GenerationConfig generation = generation_config(models::Config::parse(file.generation_config, path.string()), config);
  models::check_layers(*file.weights, config, models::family_of(config));
  Tokenizer tokenizer = whole_texts(Tokenizer::from_file(file.tokenizer, within(file.tokenizer_name),
                                                         file.tokenizer_config, within("tokenizer_config.json")));
  auto chat_template = ChatTemplate::from_config(file.tokenizer_config, within("tokenizer_config.json"));
  return {std::move(config),  std::move(generation), std::move(file.weights),
          file.usual_weights, std::move(tokenizer),  std::move(chat_template)};
}

}  // namespace

ModelFiles open_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path);
  if (path.extension() == ".gguf") return open_gguf(path);
  if (fs::exists(path, ignored))
    throw UsageError(fmt::format("{}: a model is a Hugging Face folder or a .gguf file", path.string()));
  throw FileError(fmt::format("{}: no such file or folder", path.string()));
}

}  // namespace jerboa::detail
