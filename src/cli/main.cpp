#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"Train, load and run neural networks on the CPU and on WebGPU."};
  app.require_subcommand(1);
  jerboa::cli::add_bench(app);
  jerboa::cli::add_chat(app);
  jerboa::cli::add_classify(app);
  jerboa::cli::add_convert(app);
  jerboa::cli::add_devices(app);
  jerboa::cli::add_embed(app);
  jerboa::cli::add_generate(app);
  jerboa::cli::add_import(app);
  jerboa::cli::add_perplexity(app);
  jerboa::cli::add_quantise(app);
  jerboa::cli::add_rerank(app);
  jerboa::cli::add_serve(app);
  jerboa::cli::add_template(app);
  jerboa::cli::add_tokenizer(app);
  jerboa::cli::add_verify(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const jerboa::cli::Failure&) {
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "jerboa: %s\n", error.what());
    return 1;
  }
  return 0;
}
