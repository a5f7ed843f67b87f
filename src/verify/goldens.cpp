#include "verify/goldens.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/family.h>
#include <jerboa/runtime/session.h>

#include "verify/encoder_goldens.h"
#include "verify/logit_goldens.h"
#include "verify/train_goldens.h"

namespace jerboa {

EvaluateGraph evaluate_on(const Device& device) {
  return
      [device](const Graph& graph, const std::vector<TensorId>& keep, const std::map<std::string, HostTensor>& inputs) {
        Graph copy = graph;
        for (std::size_t i = 0; i < keep.size(); ++i) copy.outputs.push_back({fmt::format("kept {}", i), keep[i]});
        Session session(device);
        session.add_entry("run", copy);
        const Result result = session.run("run", inputs);
        std::vector<HostTensor> values;
        for (std::size_t i = 0; i < keep.size(); ++i) values.push_back(result.get(fmt::format("kept {}", i)));
        return values;
      };
}

std::vector<CaseReport> verify_goldens(const std::filesystem::path& path, const Device& device) {
  if (!std::filesystem::is_directory(path)) return verify_op_goldens(SafeTensors::open(path), evaluate_on(device));
  const bool trains = exists(path / "train.safetensors"), infers = exists(path / "golden.safetensors");
  if (!trains && !infers)
    throw FileError(fmt::format("{}: contains neither train.safetensors nor golden.safetensors", path.string()));
  std::vector<CaseReport> reports;
  if (trains) reports = verify_train_goldens(path, device);
  if (!infers) return reports;
  const bool encodes = models::family_of(models::Config::open(path)).graphs.encoder != nullptr;
  for (CaseReport& report : encodes ? verify_encoder_goldens(path, device) : verify_logit_goldens(path, device))
    reports.push_back(std::move(report));
  return reports;
}

}  // namespace jerboa
