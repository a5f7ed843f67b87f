#include "models/classification.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/pooling.h>

#include "models/modules.h"

namespace jerboa::models {

Tensor hidden_input(const GraphInputs& inputs) {
  const Tensor hidden = inputs.find("hidden");
  if (!hidden || hidden.rank() != 3)
    throw UsageError(
        fmt::format("hidden must be [batch, time, width], not {}", hidden ? to_string(hidden.shape()) : "missing"));
  return hidden;
}

Tensor first_token(const Tensor& hidden) { return squeeze(slice(hidden, 1, 0, 1), {1}); }

Tensor last_token_logits(const Config& config, DType weights, const Tensor& hidden, const Tensor& lengths) {
  const Modules modules(config, weights);
  return modules.linear_f32("score", pool(hidden, lengths, Pooling::last), class_count(config), false);
}

bool classifies(const Config& config) {
  if (!config.has("architectures")) return false;
  const auto names = config.texts("architectures");
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with("ForSequenceClassification"); });
}

std::vector<std::string> class_names(const Config& config) {
  const auto names = config.section("id2label");
  std::vector<std::string> labels;
  const int otherwise = config.has("num_labels") ? config.count("num_labels") : 2;  // as in transformers
  const int count = names ? static_cast<int>(names->keys().size()) : otherwise;
  for (int i = 0; i < count; ++i) labels.push_back(names ? names->text(std::to_string(i)) : fmt::format("LABEL_{}", i));
  return labels;
}

int class_count(const Config& config) { return static_cast<int>(class_names(config).size()); }

}  // namespace jerboa::models
