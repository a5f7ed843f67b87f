#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"

// Generates completion scripts from the commands' declarations. They ask `jerboa list --names` for models.
namespace jerboa::cli {
namespace {

struct FlagWords {
  std::vector<std::string> names;    // --weights
  std::vector<std::string> choices;  // f32 f16 …; empty: any value
  bool takes_value = false;
  std::string about;
};
struct CommandWords {
  std::vector<std::string> path;  // tokenizer train
  std::string about;
  std::vector<std::pair<std::string, std::string>> commands;  // with their descriptions
  std::vector<FlagWords> flags;
  bool takes_model = false;
};

std::string first_sentence(std::string text) {
  text = text.substr(0, text.find_first_of(".;:\n"));
  std::erase_if(text, [](char c) { return c == '\'' || c == '"' || c == '[' || c == ']' || c == '`' || c == '$'; });
  return text;
}

// The choices of a one_of check, which describes itself by them: "TEXT:show|hide|off".
std::vector<std::string> choices_of(const CLI::Option& option) {
  if (option.get_name() == "--device") return {"best", "cpu", "webgpu", "reference"};
  const std::string type = option.get_type_name();
  if (type.find('|') == std::string::npos) return {};
  std::vector<std::string> words;
  for (std::size_t at = type.rfind(':') + 1; at < type.size();) {
    const std::size_t end = std::min(type.find('|', at), type.size());
    words.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

void collect(const CLI::App& command, std::vector<std::string> path, std::vector<CommandWords>& out) {
  CommandWords words{path, first_sentence(command.get_description()), {}, {}, false};
  for (const CLI::Option* option : command.get_options()) {
    FlagWords flag{
        {}, choices_of(*option), option->get_items_expected_max() > 0, first_sentence(option->get_description())};
    for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
    if (!flag.names.empty())
      words.flags.push_back(std::move(flag));
    else if (const std::string name = option->get_name(); name == "model" || name == "models" || name == "tokenizer")
      words.takes_model = true;
  }
  const auto subs = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : subs) words.commands.emplace_back(sub->get_name(), first_sentence(sub->get_description()));
  out.push_back(std::move(words));
  for (const CLI::App* sub : subs) {
    path.push_back(sub->get_name());
    collect(*sub, path, out);
    path.pop_back();
  }
}

std::vector<std::string> all_flags(const CommandWords& words) {
  std::vector<std::string> names;
  for (const FlagWords& flag : words.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::vector<std::string> all_commands(const CommandWords& words) {
  std::vector<std::string> names;
  for (const auto& [name, about] : words.commands) names.push_back(name);
  return names;
}

// The command's path as the scripts build it: " tokenizer train"; empty for jerboa itself.
std::string path_of(const CommandWords& command) {
  return command.path.empty() ? "" : fmt::format(" {}", fmt::join(command.path, " "));
}

// A shell's case patterns, one for each command.
std::string path_patterns(const std::vector<CommandWords>& commands) {
  std::vector<std::string> patterns;
  for (const CommandWords& command : commands)
    if (!command.path.empty()) patterns.push_back(fmt::format("\"{}\"", path_of(command)));
  return fmt::format("{}", fmt::join(patterns, "|"));
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string out =
      "# bash completion for jerboa: source this file, or put it into "
      "~/.local/share/bash-completion/completions/jerboa\n"
      "_jerboa() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"$command $word\" in\n";
  out += fmt::format("      {}) command=\"$command $word\" ;;\n    esac\n  done\n", path_patterns(commands));
  out += "  local words= choices= models=\n  case \"$command\" in\n";
  for (const CommandWords& command : commands) {
    std::vector<std::string> words = all_commands(command);
    const std::vector<std::string> flags = all_flags(command);
    words.insert(words.end(), flags.begin(), flags.end());
    out += fmt::format("    \"{}\") words=\"{}\"{}\n", path_of(command), fmt::join(words, " "),
                       command.takes_model ? "; models=1" : "");
    std::string cases;
    for (const FlagWords& flag : command.flags)
      if (!flag.choices.empty())
        cases +=
            fmt::format("        {}) choices=\"{}\" ;;\n", fmt::join(flag.names, "|"), fmt::join(flag.choices, " "));
    if (!cases.empty()) out += fmt::format("      case \"$previous\" in\n{}      esac\n", cases);
    out += "      ;;\n";
  }
  out +=
      "  esac\n"
      "  if [[ $choices ]]; then COMPREPLY=($(compgen -W \"$choices\" -- \"$current\")); return; fi\n"
      "  if [[ $models && $current != -* ]]; then words=\"$words $(jerboa list --names 2>/dev/null)\"; fi\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  if [[ $command && $current != -* ]]; then COMPREPLY+=($(compgen -f -- \"$current\")); fi\n"
      "}\n"
      "complete -o filenames -F _jerboa jerboa\n";
  return out;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string out =
      "#compdef jerboa\n"
      "# zsh completion for jerboa: put this into a folder of $fpath, as _jerboa\n"
      "_jerboa() {\n"
      "  local command= word\n"
      "  local -a words_here flags models\n"
      "  for word in ${words[2,CURRENT-1]}; do\n"
      "    case \"$command $word\" in\n";
  out += fmt::format("      {}) command=\"$command $word\" ;;\n    esac\n  done\n  case \"$command\" in\n",
                     path_patterns(commands));
  for (const CommandWords& command : commands) {
    out += fmt::format("    \"{}\")\n", path_of(command));
    for (const FlagWords& flag : command.flags)
      if (!flag.choices.empty())
        out += fmt::format("      case ${{words[CURRENT-1]}} in {}) compadd {}; return ;; esac\n",
                           fmt::join(flag.names, "|"), fmt::join(flag.choices, " "));
    for (const auto& [name, about] : command.commands) out += fmt::format("      words_here+=('{}:{}')\n", name, about);
    for (const FlagWords& flag : command.flags)
      for (const std::string& name : flag.names) out += fmt::format("      flags+=('{}:{}')\n", name, flag.about);
    if (command.takes_model) out += "      models=(${(f)\"$(jerboa list --names 2>/dev/null)\"})\n";
    out += "      ;;\n";
  }
  out +=
      "  esac\n"
      "  if [[ ${words[CURRENT]} == -* ]]; then _describe option flags; return; fi\n"
      "  (( ${#words_here} )) && _describe command words_here\n"
      "  (( ${#models} )) && compadd -a models\n"
      "  [[ -n $command ]] && _files\n"
      "}\n"
      "if [[ ${funcstack[1]} == _jerboa ]]; then _jerboa \"$@\"; else compdef _jerboa jerboa; fi\n";
  return out;
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string out =
      "# fish completion for jerboa: put this into ~/.config/fish/completions/jerboa.fish\n"
      "complete -c jerboa -n __fish_use_subcommand -f\n";
  for (const CommandWords& command : commands) {
    std::string condition = "__fish_use_subcommand";
    if (!command.path.empty()) {
      condition.clear();
      for (const std::string& word : command.path)
        condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ", word);
    }
    for (const auto& [name, about] : command.commands)
      out += fmt::format("complete -c jerboa -n '{}' -a {} -d '{}'\n", condition, name, about);
    if (command.takes_model)
      out += fmt::format("complete -c jerboa -n '{}' -a '(jerboa list --names 2>/dev/null)' -d model\n", condition);
    for (const FlagWords& flag : command.flags) {
      out += fmt::format("complete -c jerboa -n '{}'", condition);
      for (const std::string& name : flag.names)
        out += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2)) : fmt::format(" -s {}", name.substr(1));
      if (flag.takes_value) out += " -r";
      if (!flag.choices.empty()) out += fmt::format(" -f -a '{}'", fmt::join(flag.choices, " "));
      out += fmt::format(" -d '{}'\n", flag.about);
    }
  }
  return out;
}

}  // namespace

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  auto* sub = app.add_subcommand("completion", "Print a shell script that completes commands, flags and models");
  sub->add_option("shell", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
  add_examples(*sub,
               {"source <(jerboa completion bash)", "jerboa completion fish >~/.config/fish/completions/jerboa.fish"});
  sub->callback([&app, shell] {
    std::vector<CommandWords> commands;
    collect(app, {}, commands);
    write_text(*shell == "bash"  ? bash_script(commands)
               : *shell == "zsh" ? zsh_script(commands)
                                 : fish_script(commands));
  });
}

}  // namespace jerboa::cli
