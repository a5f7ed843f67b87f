#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "verify/goldens.h"

namespace jerboa::cli {
namespace {

struct VerifyOptions {
  std::string path, device = "best";
};

void run(const VerifyOptions& options) {
  int passed = 0, failed = 0;
  for (const CaseReport& report : verify_goldens(options.path, Device::by_name(options.device))) {
    ++(report.ok ? passed : failed);
    if (!report.ok) fmt::print("{}: {}\n", report.name, report.message);
  }
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
  add_examples(*command, {"jerboa verify tests/data/goldens/ops.safetensors --device webgpu"});
  command->callback([options] { run(*options); });
}

}  // namespace jerboa::cli
