#pragma once

namespace CLI {
class App;
}

namespace jerboa::cli {

// One function per subcommand, each in a file named after it. It declares the arguments and a callback, which does the
// work and throws Error on failure; main prints that as one line before it exits.

/// The exit status of the command.
enum class ExitCode {
  success = 0,
  failure = 1,
  usage = 2,          ///< the command line is invalid
  cut = 3,            ///< the answer was cut off before it was complete by --schema or --regex
  interrupted = 130,  ///< by Ctrl-C
};

/// Thrown when everything has been reported already: main exits with this code and prints nothing.
struct Exit {
  ExitCode code = ExitCode::failure;
};

void add_bench(CLI::App& app);
/// `bench llm`.
void add_bench_llm(CLI::App& bench);
/// `bench load`.
void add_bench_load(CLI::App& bench);
void add_chat(CLI::App& app);
void add_classify(CLI::App& app);
void add_completion(CLI::App& app);
void add_convert(CLI::App& app);
void add_devices(CLI::App& app);
void add_embed(CLI::App& app);
void add_generate(CLI::App& app);
void add_help(CLI::App& app);
void add_import(CLI::App& app);
void add_inspect(CLI::App& app);
void add_list(CLI::App& app);
void add_mcp(CLI::App& app);
void add_memory(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_pull(CLI::App& app);
void add_quantise(CLI::App& app);
void add_rerank(CLI::App& app);
void add_rm(CLI::App& app);
void add_serve(CLI::App& app);
void add_show(CLI::App& app);
void add_template(CLI::App& app);
void add_tokenizer(CLI::App& app);
void add_tools(CLI::App& app);
void add_tune(CLI::App& app);
void add_verify(CLI::App& app);

}  // namespace jerboa::cli
