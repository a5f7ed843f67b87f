#pragma once

#include <jerboa/jerboa.h>

#include "examples/gpt.h"

namespace jerboa::test {

/// Runs on one session, natively and in the web host, whose results must agree.
struct WebCase {
  struct Run {
    std::string entry;
    TensorMap inputs;
  };
  std::string name;
  std::vector<std::pair<std::string, Graph>> graphs;
  std::vector<Run> runs;
  TensorMap params = {};  ///< empty: initialised from the seed
  Target target = Target::webgpu_default();
};

std::vector<WebCase> web_cases();

/// A trainer of the GPT of the case "gpt", on the CPU.
Trainer<Gpt> web_trainer();

/// A tiny GPT as the example exports it, for the page.
void export_page_program(const std::filesystem::path& folder);

}  // namespace jerboa::test
