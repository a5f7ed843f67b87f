#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "verify/goldens.h"

namespace jerboa::cli {
namespace {

struct VerifyOptions {
  std::string path, device = "best";
  bool json = false;
};

std::vector<CaseReport> verify(const VerifyOptions& options) {
  const Waiting waiting("verifying " + options.path);
  return verify_goldens(options.path, Device::by_name(options.device));
}

void run(const VerifyOptions& options) {
  int passed = 0, failed = 0;
  auto failures = nlohmann::ordered_json::array();
  for (const CaseReport& report : verify(options)) {
    ++(report.ok ? passed : failed);
    if (report.ok) continue;
    failures.push_back({{"name", report.name}, {"message", report.message}});
    if (!options.json)
      fmt::print("{}: {}\n", printable_line(shortened(report.name, 200)), printable_line(report.message));
  }
  if (options.json)
    write_text(nlohmann::ordered_json{{"passed", passed}, {"failed", failed}, {"failures", failures}}.dump(1) + "\n");
  else
    fmt::print("{} passed, {} failed\n", passed, failed);
  if (failed > 0 || passed == 0) throw Exit{};
}

}  // namespace

void add_verify(CLI::App& app) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Compare a device with golden results; exits 0 only if all match");
  command
      ->add_option("path", options->path,
                   "An op-golden file, or a folder with goldens of training, logits or hidden states")
      ->required();
  command->add_option("--device", options->device, "Where to run: best, or the name of a device")
      ->check(device_name())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  add_examples(*command, {"jerboa verify tests/data/goldens/ops.safetensors --device webgpu"});
  command->callback([options] { run(*options); });
}

}  // namespace jerboa::cli
