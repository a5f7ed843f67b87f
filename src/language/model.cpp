#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/language/model.h>
#include <jerboa/models/family.h>
#include <jerboa/runtime/device_kind.h>

#include "language/model_files.h"
#include "steps/cache_graphs.h"
#include "steps/model_plan.h"
#include "steps/token_bytes.h"

namespace jerboa::language {
namespace {

std::vector<std::string> names_of_vectors(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param && tensor.type.shape.size() == 1) names.push_back(tensor.name);
  return names;
}

}  // namespace

Model::Model(Session session, Tokenizer tokenizer, std::unique_ptr<const ModelPlan> plan)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), plan_(std::move(plan)) {}

Model::~Model() = default;

std::shared_ptr<Model> Model::load(const std::filesystem::path& path, const LanguageModelOptions& options) {
  detail::ModelFiles files = detail::open_model(path);
  const models::Family& family = models::family_of(files.config);
  const Device device = options.device ? *options.device : Device::best();
  const DType type = options.weights.value_or(files.usual_weights);
  const bool mixes = type == DType::f16 && multiplies_f16_matrices(device);
  auto plan = std::make_unique<const ModelPlan>(
      std::move(files.config),
      PlanOptions{.weights = type,
                  .cache = options.cache,
                  .precision = options.precision.value_or(mixes ? Precision::mixed_f16 : Precision::full),
                  .context = options.context,
                  .chunk = options.chunk,
                  .sequences = options.sequences,
                  .block = options.block,
                  .cache_tokens = options.cache_tokens,
                  .pipelined = options.pipelined,
                  .device_sampling = options.device_sampling,
                  .deterministic = options.deterministic,
                  .is_gpu = is_gpu(device)});
  models::check_params(*files.weights, plan->outline(), family);  // before allocating what config.json asks for

  std::shared_ptr<Model> model(new Model(Session(device), std::move(files.tokenizer), std::move(plan)));
  model->template_ = std::move(files.chat_template);
  model->end_tokens_ = files.generation.end_tokens;
  model->sampling_ = files.generation.sampling;
  model->vectors_ = names_of_vectors(model->plan_->outline());
  Session& session = model->session_;
  session.declare(model->plan_->outline());
  models::for_each_param(*files.weights, model->plan_->outline(), family,
                         [&](const models::ParamValues& values) { session.upload_param(values.name, values.bytes); });
  // What nearly every text needs, so that the first one does not wait for it.
  for (const Entry& entry : model->plan_->usual_entries(model->sampling_))
    model->add_entry_once(entry.name, entry.graph);
  const auto& caches = model->plan_->caches();
  if (!caches.empty()) session.storage(caches.front().name);  // clears the cache, before anyone waits
  return model;
}

bool Model::is_deterministic() const { return plan_->is_deterministic(); }
bool Model::samples_on_device() const { return plan_->samples_on_device(); }
int Model::context() const { return plan_->context(); }
const CacheSize& Model::cache() const { return plan_->cache(); }
const serving::SchedulerOptions& Model::scheduling() const { return plan_->scheduling(); }
std::int64_t Model::vocabulary_size() const { return plan_->vocabulary_size(); }
std::int64_t Model::parameters() const { return plan_->parameters(); }
std::int64_t Model::weight_bytes() const { return plan_->weight_bytes(); }

Model::Running Model::run(const serving::Step& step) {
  Running running;
  for (const Run& run : plan_->runs_of(step)) {  // the last is the step, those before it are copies
    add_entry_once(run.entry.name, run.entry.graph);
    running.result_ = session_.run(run.entry.name, run.inputs);
    running.has_tokens_ = run.draws;
    running.dispatches_ = session_.kernel_count(run.entry.name);
  }
  return running;
}

serving::StepResults Model::Running::read(const serving::Step& step) const {
  HostTensor tokens(DType::i32, {0}), logits(DType::f32, {0});
  if (has_tokens_) tokens = result_.get("tokens");
  if (!has_tokens_ || wants_logits(step)) logits = result_.get("logits");
  return results_of(step, tokens.i32(), logits.f32());
}

TensorMap Model::text_inputs(const serving::PageTable& table, std::int64_t start,
                             std::span<const std::int32_t> tokens) const {
  const std::int64_t count = std::ssize(tokens);
  HostTensor positions(DType::i32, {1, count});
  for (std::int64_t i = 0; i < count; ++i) positions.set_number(i, static_cast<double>(start + i));
  std::vector<std::int32_t> blocks(table.blocks().begin(), table.blocks().end());
  blocks.resize(static_cast<std::size_t>(scheduling().block_buckets.back()), 0);
  TensorMap inputs{{"ids", integers({1, count}, tokens)},
                   {"positions", std::move(positions)},
                   {"lengths", integers({1}, std::vector<std::int32_t>{static_cast<std::int32_t>(start + count)})},
                   {"table", integers({1, std::ssize(blocks)}, blocks)}};
  if (scheduling().state_slots > 0)
    inputs.emplace("slots", integers({1}, std::vector<std::int32_t>{scheduling().state_slots}));
  return inputs;
}

std::vector<float> Model::score(const serving::PageTable& table, std::int64_t start,
                                std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  add_entry_once("score", [&] {
    return score_graph(plan_->graph_settings(), scheduling().chunk, scheduling().block_buckets.back());
  });
  TensorMap inputs = text_inputs(table, start, tokens);
  inputs.emplace("targets", integers({1, std::ssize(next)}, next));
  const HostTensor result = session_.run("score", inputs).get("output");
  return {result.f32().begin(), result.f32().end()};
}

HostTensor Model::logits(const serving::PageTable& table, std::int64_t start, std::span<const std::int32_t> tokens) {
  add_entry_once("logits", [&] {
    return logits_graph(plan_->graph_settings(), scheduling().chunk, scheduling().block_buckets.back());
  });
  return session_.run("logits", text_inputs(table, start, tokens)).get("output");
}

void Model::add_entry_once(const std::string& name, const std::function<Graph()>& make_graph) {
  const std::lock_guard lock(mutex_);
  if (!session_.has_entry(name)) session_.add_entry(name, make_graph());
}

TensorMap Model::read_blocks(std::span<const serving::Block> blocks) {
  add_entry_once("read blocks", [&] { return read_graph(plan_->caches()); });
  TensorMap all;
  for (const CacheSpec& cache : plan_->caches()) {
    Sizes shape = evaluate(cache.shape, {});
    shape[0] = std::ssize(blocks);
    all.emplace(cache.name, HostTensor(cache.dtype, shape));
  }
  for (std::size_t at = 0; at < blocks.size(); at += moved_blocks) {
    const auto some = blocks.subspan(at, std::min<std::size_t>(moved_blocks, blocks.size() - at));
    const Result result = session_.run("read blocks", {{"from", block_numbers(some, 0)}});
    for (auto& [name, values] : all) {
      const HostTensor part = result.get(name + blocks_suffix);
      const std::size_t bytes = part.bytes().size() / moved_blocks;
      std::memcpy(values.bytes().data() + at * bytes, part.bytes().data(), some.size() * bytes);
    }
  }
  return all;
}

void Model::write_blocks(std::span<const serving::Block> blocks, const TensorMap& values) {
  add_entry_once("write blocks", [&] { return write_graph(plan_->caches()); });
  for (std::size_t at = 0; at < blocks.size(); at += moved_blocks) {
    const auto some = blocks.subspan(at, std::min<std::size_t>(moved_blocks, blocks.size() - at));
    TensorMap inputs{{"to", block_numbers(some, -1)}};
    for (const auto& [name, all] : values) {
      Sizes shape = all.shape();
      shape[0] = moved_blocks;
      HostTensor part(all.dtype(), shape);
      const std::size_t bytes = part.bytes().size() / moved_blocks;
      std::memcpy(part.bytes().data(), all.bytes().data() + at * bytes, some.size() * bytes);
      inputs.emplace(name + blocks_suffix, std::move(part));
    }
    session_.run("write blocks", inputs);
  }
}

std::int64_t Model::activation_bytes() const {
  std::int64_t most = 0;
  for (const EntryInfo& entry : session_.entries())
    most = std::max(most, session_.memory_report(entry.name).activations);
  return most;
}

std::string Model::fingerprint() const {
  std::uint64_t hash = static_cast<std::uint64_t>(parameters());
  const auto mix = [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash = split_mix(hash + static_cast<std::uint64_t>(byte) + split_mix_step);
  };
  for (const std::string& name : vectors_) {
    mix(std::as_bytes(std::span(name)));
    mix(session_.download_param(name).bytes());
  }
  return fmt::format("{} {} {:016x}", plan_->config().text("model_type"), jerboa::name(plan_->weights()), hash);
}

std::shared_ptr<const Vocabulary> Model::vocabulary() const {
  const std::lock_guard lock(mutex_);
  if (!vocabulary_)
    vocabulary_ = std::make_shared<const Vocabulary>(detail::token_bytes(tokenizer_, vocabulary_size()), end_tokens_);
  return vocabulary_;
}

void Model::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens)
    if (token < 0 || vocabulary_size() <= token)
      throw UsageError(fmt::format("there is no token {}; the model has {}{}", token, vocabulary_size(),
                                   tokenizer_.id_to_token(token) ? ", fewer than its tokenizer" : ""));
}

void Model::acquire_cache() {
  const std::lock_guard lock(mutex_);
  if (cache_is_taken_)
    throw UsageError("the model's cache belongs to another runner; submit to that one, or load the model again");
  cache_is_taken_ = true;
}

void Model::release_cache() {
  const std::lock_guard lock(mutex_);
  cache_is_taken_ = false;
}

}  // namespace jerboa::language
