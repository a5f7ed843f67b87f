#pragma once

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

/// The graph whose parameters are those of a model that reads text, with matrices of this type.
inline Graph graph_of(const Config& config, const Family& family, DType weights) {
  return trace([&] {
    const GraphInputs inputs{.tensors = {{"ids", tensor_input("ids", {1, 1}, DType::i32)}}, .weights = weights};
    const bool writes = family.graphs.decoder && !classifies(config);
    const auto results = writes ? family.graphs.decoder(config, inputs) : family.encode(config, inputs);
    for (const auto& [name, tensor] : results) output(name, tensor);
  });
}

}  // namespace jerboa::models
