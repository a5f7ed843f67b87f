#pragma once

namespace CLI {
class App;
}

namespace jerboa::cli {

// One function per subcommand, each in a file of its name. It declares the arguments and a callback that does the work;
// the callback throws Error on failure, which main prints as one line before it exits with 1.
void add_template_command(CLI::App& app);

}  // namespace jerboa::cli
