#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

void add_commands(CLI::App& app) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "jerboa " JERBOA_VERSION);
  for (const auto add :
       {add_chat,       add_generate, add_serve,    add_pull,       add_list,      add_show,     add_rm,
        add_inspect,    add_embed,    add_classify, add_rerank,     add_memory,    add_mcp,      add_tools,
        add_perplexity, add_convert,  add_quantise, add_import,     add_tokenizer, add_template, add_devices,
        add_bench,      add_tune,     add_verify,   add_completion, add_help})
    add(app);
  add_examples(app, {"jerboa pull minimind2-small", "jerboa chat minimind2-small",
                     "jerboa generate stories15m \"Once upon a time\"", "jerboa help generate"});
}

// Messages may quote a file or a server, which must neither control the terminal nor flood it.
std::string printable(std::string_view message) {
  constexpr std::size_t longest = 8000;
  const std::string text = shortened(message, longest);
  std::string lines;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('\n', begin);
    lines += (begin == 0 ? "" : "\n") + printable_line(std::string_view(text).substr(begin, end - begin));
  }
  return lines;
}

int fail(const std::string& message, ExitCode code) {
  std::fprintf(stderr, "%s\n", printable(message).c_str());
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app{"Train, load and run neural networks on the CPU and on WebGPU.", "jerboa"};
  add_commands(app);
  try {
    if (argc == 1) {
      std::fputs(app.help().c_str(), stderr);
      return static_cast<int>(ExitCode::usage);
    }
    app.parse(argc, argv);
    flush_output();
  } catch (const CLI::Success& success) {  // --help and --version
    app.exit(success);
    flush_output();
  } catch (const CLI::ParseError& error) {
    return fail(describe(error, app, std::vector<std::string>(argv + 1, argv + argc)), ExitCode::usage);
  } catch (const Exit& exit) {
    return static_cast<int>(exit.code);
  } catch (const BadArguments& error) {
    return fail(full_name(parsed_command(app)) + ": " + error.what(), ExitCode::usage);
  }
  return 0;
}

}  // namespace
}  // namespace jerboa::cli

int main(int argc, char** argv) {
  using namespace jerboa::cli;
  exit_on_interrupt();
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return fail(std::string("jerboa: ") + error.what(), ExitCode::failure);
  }
}
