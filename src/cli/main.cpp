#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Train, load and run neural networks on the CPU and on WebGPU."};
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
