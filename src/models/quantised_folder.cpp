#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>

#include "models/folder_files.h"
#include "models/model_graph.h"
#include "models/temporary_folder.h"

// Checkpoints of quantised weights (docs/quantised-weights.md).
namespace jerboa::models {
namespace {

namespace fs = std::filesystem;

constexpr const char* format_key = "jerboa.quantised.format";
constexpr const char* type_key = "jerboa.quantised.type";
constexpr const char* format_version = "2";

TensorView view_of_param(const std::string& name, const HostTensor& values) {
  Sizes shape = values.shape();
  switch (values.dtype()) {
    case DType::f32: return {name, StoredType::F32, shape, values.bytes()};
    case DType::f16: return {name, StoredType::F16, shape, values.bytes()};
    case DType::i8: return {name, StoredType::I8, shape, values.bytes()};
    case DType::i4:  // safetensors has no int4: two weights share a byte
      shape.back() /= 2;
      return {name, StoredType::U8, shape, values.bytes()};
    default: throw UsageError(fmt::format("{}: {} cannot be saved", name, jerboa::name(values.dtype())));
  }
}

}  // namespace

std::string_view quantised_name(DType dtype) { return dtype == DType::i8 ? "int8" : "int4"; }

std::optional<DType> quantised_type(const TensorSource& weights) {
  const auto format = weights.metadata().find(format_key), type = weights.metadata().find(type_key);
  if (format == weights.metadata().end()) return std::nullopt;
  const auto fail = [&](const std::string& what) {
    throw FileError(fmt::format("{}: {}", weights.path().string(), what));
  };
  if (format->second != format_version)
    fail(
        fmt::format("holds quantised weights in format {}, but this version of Jerboa reads format {}; quantise the "
                    "original again",
                    format->second, format_version));
  for (const DType dtype : {DType::i8, DType::i4})
    if (type != weights.metadata().end() && type->second == quantised_name(dtype)) return dtype;
  fail(fmt::format("{} must be int8 or int4, not {}", type_key,
                   type == weights.metadata().end() ? "missing" : type->second));
  return std::nullopt;
}

void quantise_folder(const fs::path& from, const fs::path& to, DType weights, const KnownInputs& inputs) {
  if (weights != DType::i8 && weights != DType::i4)
    throw UsageError(fmt::format("weights can be quantised to int8 or int4, not to {}", name(weights)));
  std::error_code error;
  if (fs::equivalent(from, to, error))
    throw UsageError(fmt::format("{} cannot be replaced by its quantised form; name another folder", from.string()));
  TemporaryFolder made(to);
  const ModelFolder model = open_model_folder(from);
  const TensorSource& original = *model.weights;
  const Config config = Config::parse(model.files.at("config.json"), (from / "config.json").string());
  const Family& family = family_of(config);
  if (const auto type = quantised_type(original))
    throw UsageError(
        fmt::format("{} holds {} weights already; quantise the original", from.string(), quantised_name(*type)));
  check_layers(original, config, family);
  const auto params = read_params(original, graph_of(config, family, weights), family, inputs);
  std::vector<TensorView> tensors;
  for (const auto& [name, values] : params) tensors.push_back(view_of_param(name, values));
  write_safetensors(made.path() / "model.safetensors", tensors,
                    {{"format", "pt"}, {format_key, format_version}, {type_key, std::string(quantised_name(weights))}});
  write_model_files(made.path(), model.files);
  made.take_name();
}

}  // namespace jerboa::models
