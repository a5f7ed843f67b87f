#pragma once

namespace CLI {
class App;
}

namespace jerboa::cli {

// One function per subcommand, each in a file of its name. It declares the arguments and a callback that does the work;
// the callback throws Error on failure, which main prints as one line before it exits.

/// What the command exits with.
enum class ExitCode {
  success = 0,
  failure = 1,
  usage = 2,          ///< the command line is wrong
  cut = 3,            ///< the answer ended before it was complete in the form of --schema or --regex
  interrupted = 130,  ///< by Ctrl-C
};

/// Thrown when a command has already said all there is to say: main exits with this and prints nothing.
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
