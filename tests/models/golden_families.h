#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <jerboa/models/family.h>

namespace jerboa::test {

/// The golden folders that are named after a family with a certain graph, one per row of the table: a new row is tested
/// automatically.
inline std::vector<std::string> golden_folders(models::GraphBuilder models::FamilyGraphs::*graph) {
  std::vector<std::string> names;
  for (const models::Family& family : models::families()) {
    if (family.graphs.*graph == nullptr) continue;
    names.emplace_back(family.model_type);
    std::replace(names.back().begin(), names.back().end(), '-', '_');
  }
  return names;
}
inline std::vector<std::string> golden_families() { return golden_folders(&models::FamilyGraphs::decoder); }
inline std::vector<std::string> golden_encoders() { return golden_folders(&models::FamilyGraphs::encoder); }

/// How much more this golden magnifies rounding errors than others. Where a head's query and key are nearly orthogonal,
/// the result of reading a memory of few tokens is small, and a norm magnifies it.
inline double magnification(const std::string& family) {
  if (family == "qwen3_next") return 20;
  if (family == "qwen3_5_text" || family == "qwen3_5_moe_text") return 4;
  return family == "gemma4_text" ? 2 : 1;
}

inline std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace jerboa::test
