#pragma once

#include <jerboa/jerboa.h>

namespace jerboa::test {

/// What is run on one session, natively and by the web host, whose results must agree.
struct WebCase {
  struct Run {
    std::string entry;
    TensorMap inputs;
  };
  std::string name;
  std::vector<std::pair<std::string, Graph>> graphs;
  std::vector<Run> runs;
  TensorMap params = {};  ///< empty: what the seed gives
  Target target = Target::webgpu_default();
};

std::vector<WebCase> web_cases();

/// A tiny GPT as the example exports it, for the page.
void export_page_program(const std::filesystem::path& folder);

}  // namespace jerboa::test
