#include <algorithm>
#include <fmt/format.h>

#include <jerboa/frontend/trainer.h>

namespace jerboa {
namespace {

// "ids:i32[8, 128] targets:i32[8, 128]": the properties that a compiled step depends on.
std::string signature(const TensorMap& batch) {
  std::string text;
  for (const auto& [name, tensor] : batch)
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", name, jerboa::name(tensor.dtype()),
                        to_string(tensor.shape()));
  return text;
}

void check_batch(const Batch& batch) {
  if (batch.empty()) throw UsageError("the batch is empty: it holds no tensor");
  for (const auto& [name, tensor] : batch)
    if (tensor.size() == 0)
      throw UsageError(
          fmt::format("the batch is empty: {} is {}{}", name, jerboa::name(tensor.dtype()), to_string(tensor.shape())));
}

// The update is compiled for the parameters of the first batch: gradients of others would accumulate forever.
void check_all_updated(const std::string& entry, const Graph& accumulation, const Graph& apply) {
  for (const Update& update : accumulation.updates) {
    const std::string& name = accumulation.tensor(update.target).name;
    if (name.starts_with(gradient_prefix) && apply.find(name) == no_tensor)
      throw UsageError(
          fmt::format("entry {}: the loss trains {}, which it did not for the first batch; let it use the same "
                      "parameters for all batches that are accumulated",
                      entry, name.substr(std::string_view(gradient_prefix).size())));
  }
}

}  // namespace

TrainerCore::TrainerCore(Loss loss, std::vector<Parameter> parameters, TrainerOptions options, const CallSite& site)
    : loss_(std::move(loss)),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      site_(site),
      session_(
          options_.device ? *options_.device : Device::best(),
          {.seed = options_.seed, .check_finite = options_.check_finite, .check_indices = options_.check_indices}) {
  if (options_.accumulate < 1)
    throw UsageError(fmt::format("accumulate must be at least 1, not {}", options_.accumulate));
}

void TrainerCore::add_entry(const std::string& entry, const Graph& graph) {
  if (loaded_ && !prepared_) session_.check_loaded(graph);
  session_.add_entry(entry, graph);
  prepared_ = true;
}

std::string TrainerCore::entry_for(const Batch& data) {
  check_batch(data);
  const bool whole = options_.accumulate == 1;
  std::string entry = fmt::format("{} {}", whole ? "step" : "grad", signature(data));
  if (session_.has_entry(entry)) return entry;
  const PrecisionOptions precision{options_.precision, options_.loss_scaling};
  if (whole) {
    add_entry(entry, training_graph(specs_of(data), loss_, options_.optimizer, site_, precision));
    return entry;
  }
  const Graph graph = accumulation_graph(specs_of(data), loss_, options_.accumulate, site_, precision);
  if (!session_.has_entry("apply")) add_entry("apply", apply_graph(graph, options_.optimizer, site_, precision));
  check_all_updated(entry, graph, session_.graph("apply"));
  add_entry(entry, graph);
  return entry;
}

Batch TrainerCore::take_rate(Batch& data) const {
  Batch rate;
  if (const auto* host = std::get_if<HostRate>(&options_.optimizer.lr)) {
    if (!data.contains(host->input))
      throw UsageError(
          fmt::format("the batch has no {}, the learning rate that the optimizer expects from the host", host->input));
    rate.insert(data.extract(host->input));
    check_rate(rate.begin()->second.item());
  }
  return rate;
}

void TrainerCore::prepare(const Batch& batch) {
  Batch data = batch;
  if (const auto* host = std::get_if<HostRate>(&options_.optimizer.lr)) data.erase(host->input);
  entry_for(data);
}

StepResult TrainerCore::step(const Batch& batch, const RunOptions& options) {
  if (options_.accumulate > 1) return accumulate(batch, options);
  Batch data = batch;
  Batch rate = take_rate(data);
  const std::string entry = entry_for(data);
  data.merge(rate);
  Result result = session_.run(entry, data, options);
  return {std::move(result), ++steps_};
}

StepResult TrainerCore::accumulate(const Batch& batch, const RunOptions& options) {
  try {
    Batch data = batch;
    const Batch rate = take_rate(data);
    const std::string entry = entry_for(data);
    if (stale_) {
      session_.reset_gradients();
      stale_ = false;
    }
    Result result = session_.run(entry, data, options);
    if (++parts_done_ == options_.accumulate) {
      session_.run("apply", rate);
      parts_done_ = 0;
      ++steps_;
    }
    return {std::move(result), steps_};
  } catch (...) {
    // The state of the gradients in storage is unknown. The next batch begins a new update.
    parts_done_ = 0;
    stale_ = true;
    throw;
  }
}

void TrainerCore::save(const std::filesystem::path& path) const {
  if (!prepared_ && !loaded_)
    throw UsageError("save: there is nothing to save yet; call step, prepare(batch) or load first");
  session_.save(path);
}

void TrainerCore::declare_like(const std::filesystem::path& path) {
  const auto names = checkpoint_params(path);
  session_.declare(trace([&] {
    const SiteScope scope(site_);
    std::vector<ParamGrad> grads;
    for (const Parameter& parameter : parameters_) {
      if (std::find(names.begin(), names.end(), parameter.path) == names.end()) continue;
      const Tensor tensor = Operand(parameter).tensor();
      if (parameter.trainable) grads.push_back({tensor, zeros_like(tensor)});
    }
    if (!grads.empty()) append_optimizer(grads, options_.optimizer);
  }));
}

LoadReport TrainerCore::load(const std::filesystem::path& path) {
  if (!prepared_) declare_like(path);
  LoadReport report = session_.load(path, {.across_optimizers = true, .keep_unknown = !prepared_});
  loaded_ = !prepared_;
  const std::string counter = step_state_of(options_.optimizer.name);
  const auto states = session_.state_names();
  const bool counts = std::find(states.begin(), states.end(), counter) != states.end();
  steps_ = counts ? static_cast<std::int64_t>(session_.download_state(counter).item()) : 0;
  parts_done_ = 0;
  stale_ = false;
  return report;
}

void TrainerCore::reset(std::optional<std::uint64_t> seed) {
  session_.reset(seed);
  steps_ = 0;
  parts_done_ = 0;
  stale_ = false;
  loaded_ = false;
}

Result ForwardPass::operator()(const TensorMap& inputs, const RunOptions& options) {
  const std::string entry = "forward " + signature(inputs);
  if (!session_.has_entry(entry))
    session_.add_entry(entry, forward_graph(specs_of(inputs), using_all_inputs(forward_), site_, precision_));
  return session_.run(entry, inputs, options);
}

}  // namespace jerboa
