#pragma once

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/io/safetensors.h>

#include "support/temp_folder.h"

namespace jerboa::test {

/// Makes a copy of the goldens' BERT a model with a head that has a score for each of the classes.
inline void write_bert_head(const std::filesystem::path& golden, const std::filesystem::path& folder,
                            const std::vector<std::string>& classes) {
  auto config = nlohmann::json::parse(read_text(golden / "config.json"));
  config["architectures"] = {"BertForSequenceClassification"};
  for (std::size_t i = 0; i < classes.size(); ++i) config["id2label"][std::to_string(i)] = classes[i];
  write_text(folder / "config.json", config.dump());
  const SafeTensors file = SafeTensors::open(golden);
  std::vector<TensorView> views;
  for (const std::string& name : file.names()) {
    views.push_back(file.view(name));
    views.back().name = "bert." + name;
  }
  std::vector<float> weight(classes.size() * 64), bias(classes.size());
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = std::cos(static_cast<float>(i) * 1.7f);
  views.push_back(view_of("classifier.weight", {std::ssize(classes), 64}, std::span<const float>(weight)));
  views.push_back(view_of("classifier.bias", {std::ssize(classes)}, std::span<const float>(bias)));
  write_safetensors(folder / "model.safetensors", views);
}

}  // namespace jerboa::test
