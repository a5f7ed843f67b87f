#pragma once

namespace CLI {
class App;
}

namespace jerboa::cli {

// One function per subcommand, each in a file of its name. It declares the arguments and a callback that does the work;
// the callback throws Error on failure, which main prints as one line before it exits with 1.

/// Thrown when a command has already reported the error: main exits with 1 and prints nothing.
struct Failure {};

void add_bench(CLI::App& app);
/// `bench llm`.
void add_bench_llm(CLI::App& bench);
void add_chat(CLI::App& app);
void add_classify(CLI::App& app);
void add_convert(CLI::App& app);
void add_devices(CLI::App& app);
void add_embed(CLI::App& app);
void add_generate(CLI::App& app);
void add_import(CLI::App& app);
void add_perplexity(CLI::App& app);
void add_quantise(CLI::App& app);
void add_rerank(CLI::App& app);
void add_serve(CLI::App& app);
void add_template(CLI::App& app);
void add_tokenizer(CLI::App& app);
void add_verify(CLI::App& app);

}  // namespace jerboa::cli
