#include <fmt/format.h>
#include <map>

#include <jerboa/base/error.h>
#include <jerboa/models/gguf_model.h>

#include "models/gguf_parts.h"

namespace jerboa::models {
namespace {

// Blocks that fit neither int8 nor int4 lose least in int8.
DType nearest(GgmlType type) {
  switch (type) {
    case GgmlType::F32: return DType::f32;
    case GgmlType::F16: return DType::f16;
    case GgmlType::BF16: return DType::bf16;
    case GgmlType::Q4_0:
    case GgmlType::Q4_1: return DType::i4;
    default: return DType::i8;
  }
}

DType usual_weights(const Gguf& file) {
  std::map<DType, std::size_t> elements;
  for (const std::string& name : file.names())
    elements[nearest(file.tensor(name).type)] += file.tensor(name).elements();
  DType most = DType::f32;
  for (const auto& [dtype, count] : elements)
    if (count > elements[most]) most = dtype;
  return most;
}

}  // namespace

GgufModel read_gguf_model(Gguf file) {
  if (file.has("split.count") && file.integer("split.count") > 1)
    throw FileError(fmt::format("{}: one of {} parts of a model; join them first: llama-gguf-split --merge",
                                file.path().string(), file.integer("split.count")));
  const auto shared = std::make_shared<const Gguf>(std::move(file));
  const GgufArchitecture& architecture = gguf_architecture(*shared);
  GgufModel model;
  model.config = gguf_config(*shared, architecture);
  model.weights = gguf_weights(shared, architecture);
  model.usual_weights = usual_weights(*shared);
  read_gguf_tokenizer(*shared, architecture, model);
  return model;
}

}  // namespace jerboa::models
