#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace jerboa {

/// The main function of a program that is called as PROGRAM [ADAPTER [SIZE]...]: `parse` reads a size, `run` takes the
/// adapter, empty for the default, and the sizes, none for a selection.
template <class Parse, class Run>
int run_with_arguments(const char* program, int argc, char** argv, Parse parse, Run run) {
  try {
    std::vector<decltype(parse(std::string()))> sizes;
    for (int i = 2; i < argc; ++i) sizes.push_back(parse(argv[i]));
    run(argc > 1 ? argv[1] : "", std::move(sizes));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
}

}  // namespace jerboa
