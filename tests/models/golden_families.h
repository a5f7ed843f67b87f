#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <jerboa/models/family.h>

namespace jerboa::test {

/// The golden folders that are named after a family, one per row of the table: a new row is tested automatically.
inline std::vector<std::string> golden_families() {
  std::vector<std::string> names;
  for (const models::Family& family : models::families()) names.emplace_back(family.model_type);
  return names;
}

inline std::string name_of(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace jerboa::test
