#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Train, load and run neural networks on the CPU and on WebGPU."};
  app.require_subcommand(1);
  jerboa::cli::add_template_command(app);
  try {
    CLI11_PARSE(app, argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "jerboa: %s\n", error.what());
    return 1;
  }
  return 0;
}
