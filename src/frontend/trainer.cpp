#include <fmt/format.h>

#include <jerboa/frontend/trainer.h>

namespace jerboa {
namespace {

// "ids:i32[8, 128] targets:i32[8, 128]": what a compiled step depends on.
std::string signature(const TensorMap& batch) {
  std::string text;
  for (const auto& [name, tensor] : batch)
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", name, jerboa::name(tensor.dtype()),
                        to_string(tensor.shape()));
  return text;
}

}  // namespace

TrainerCore::TrainerCore(Forward loss, TrainerOptions options)
    : loss_(std::move(loss)),
      options_(std::move(options)),
      session_(options_.device ? *options_.device : Device::best(), {.seed = options_.seed}) {
  if (options_.accumulate < 1)
    throw UsageError(fmt::format("accumulate must be at least 1, not {}", options_.accumulate));
}

std::string TrainerCore::entry_for(const Batch& data) {
  const bool whole = options_.accumulate == 1;
  std::string entry = fmt::format("{} {}", whole ? "step" : "grad", signature(data));
  if (session_.has_entry(entry)) return entry;
  if (whole) {
    session_.add_entry(entry, training_graph(specs_of(data), loss_, options_.optimizer));
    return entry;
  }
  const Graph graph = accumulation_graph(specs_of(data), loss_, options_.accumulate);
  session_.add_entry(entry, graph);
  if (!session_.has_entry("apply")) session_.add_entry("apply", apply_graph(graph, options_.optimizer));
  return entry;
}

Batch TrainerCore::take_rate(Batch& data) const {
  Batch rate;
  if (const auto* host = std::get_if<HostRate>(&options_.optimizer.lr)) {
    if (!data.contains(host->input))
      throw UsageError(
          fmt::format("the batch has no {}, the learning rate that the optimizer takes from the host", host->input));
    rate.insert(data.extract(host->input));
  }
  return rate;
}

void TrainerCore::prepare(const Batch& batch) {
  Batch data = batch;
  if (const auto* host = std::get_if<HostRate>(&options_.optimizer.lr)) data.erase(host->input);
  entry_for(data);
}

StepResult TrainerCore::step(const Batch& batch, const RunOptions& options) {
  Batch data = batch;
  Batch rate = take_rate(data);
  const std::string entry = entry_for(data);
  if (options_.accumulate == 1) {
    data.merge(rate);
    Result result = session_.run(entry, data, options);
    return {std::move(result), ++steps_};
  }
  Result result = session_.run(entry, data, options);
  if (++parts_done_ == options_.accumulate) {
    parts_done_ = 0;
    session_.run("apply", rate);
    ++steps_;
  }
  return {std::move(result), steps_};
}

void TrainerCore::load(const std::filesystem::path& path) {
  if (session_.param_names().empty())
    throw UsageError("load: the trainer has no storage yet; call prepare(batch) or make a step first");
  session_.load(path);
  steps_ = static_cast<std::int64_t>(session_.download_state(step_state).item());
  parts_done_ = 0;
}

void TrainerCore::reset(std::optional<std::uint64_t> seed) {
  session_.reset(seed);
  steps_ = 0;
  parts_done_ = 0;
}

Result ForwardPass::operator()(const TensorMap& inputs, const RunOptions& options) {
  const std::string entry = "forward " + signature(inputs);
  if (!session_.has_entry(entry)) session_.add_entry(entry, forward_graph(specs_of(inputs), forward_));
  return session_.run(entry, inputs, options);
}

}  // namespace jerboa
