#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/language/model.h>
#include <jerboa/models/family.h>
#include <jerboa/runtime/device_kind.h>

#include "base/clock.h"
#include "language/entries_ahead.h"
#include "language/half_range.h"
#include "language/model_files.h"
#include "language/storage_bytes.h"
#include "steps/cache_graphs.h"
#include "steps/model_plan.h"
#include "steps/token_bytes.h"

namespace jerboa::language {
namespace {

/// Distinguishes models by a hash. Large parameters are sampled, which suffices because training changes every part of
/// a matrix.
class Fingerprint {
 public:
  void mix(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash_ = split_mix(hash_ + static_cast<std::uint64_t>(byte) + split_mix_step);
  }
  void mix(const std::string& text) { mix(std::as_bytes(std::span(text))); }
  void mix_samples(std::span<const std::byte> bytes) {
    constexpr std::size_t count = 256, size = 16;
    if (bytes.size() <= count * size) return mix(bytes);
    for (std::size_t i = 0; i < count; ++i) mix(bytes.subspan((bytes.size() - size) * i / (count - 1), size));
  }
  std::uint64_t hash() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

using detail::Stopwatch;

}  // namespace

Model::Model(Session session, Tokenizer tokenizer, std::unique_ptr<const ModelPlan> plan)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), plan_(std::move(plan)) {}

Model::~Model() = default;

std::shared_ptr<Model> Model::load(const std::filesystem::path& path, const LanguageModelOptions& options) {
  const Stopwatch watch;
  detail::ModelFiles files = detail::open_model(path);
  const double opening = watch.seconds();
  std::shared_ptr<Model> model = load(std::move(files), options);
  model->load_seconds_.opening = opening;
  model->load_seconds_.whole += opening;
  return model;
}

std::shared_ptr<Model> Model::load(detail::ModelFiles files, const LanguageModelOptions& options) {
  const Stopwatch whole;
  Stopwatch watch;
  const models::Family& family = models::family_of(files.config);
  const Device device = options.device ? *options.device : Device::best();
  const DType type = options.weights.value_or(files.usual_weights);
  const bool mixes = type == DType::f16 && multiplies_f16_matrices(device);
  const Precision precision = options.precision.value_or(mixes ? Precision::mixed_f16 : Precision::full);
  const PlanOptions chosen{.weights = type,
                           .cache = options.cache,
                           .precision = precision,
                           .context = options.context,
                           .chunk = options.chunk,
                           .sequences = options.sequences,
                           .block = options.block,
                           .cache_tokens = options.cache_tokens,
                           .pipelined = options.pipelined,
                           .device_sampling = options.device_sampling,
                           .deterministic = options.deterministic,
                           .is_gpu = is_gpu(device)};
  auto plan = std::make_unique<const ModelPlan>(std::move(files.config), chosen);
  models::check_params(*files.weights, plan->outline(), family);  // before allocating what config.json asks for
  if (options.before_allocation) options.before_allocation(detail::storage_bytes({&plan->outline()}));

  std::shared_ptr<Model> model(new Model(Session(device), std::move(files.tokenizer), std::move(plan)));
  model->template_ = std::move(files.chat_template);
  model->end_tokens_ = files.generation.end_tokens;
  model->sampling_ = files.generation.sampling;
  Session& session = model->session_;
  // Compile the entries that nearly every request needs, so that the first one does not wait for them.
  const EntriesAhead usual(session, model->plan_->usual_entries(model->sampling_));
  session.declare(model->plan_->outline());
  Fingerprint fingerprint;
  fingerprint.mix(model->plan_->config().to_json());
  // Frequencies of rotary positions, which may depend on the context.
  for (const HostTensor& constant : model->plan_->outline().constants) fingerprint.mix_samples(constant.bytes());
  LoadSeconds& seconds = model->load_seconds_;
  seconds.planning = watch.lap();
  models::ReadSeconds reads;
  const std::int64_t bytes = model->weight_bytes();
  std::int64_t done = 0;
  const auto put = [&](const models::ParamValues& values) {
    usual.check();
    if (precision == Precision::mixed_f16)
      detail::check_fits_halves(model->plan_->outline(), values.name, values.bytes);
    Stopwatch upload;
    if (!values.is_in_place) session.upload_param(values.name, values.bytes);
    seconds.uploading += upload.seconds();
    fingerprint.mix(values.name);
    fingerprint.mix_samples(values.bytes);
    done += std::ssize(values.bytes);
    if (options.on_weights) options.on_weights(done, bytes);
  };
  const auto memory = [&](const std::string& name) { return session.overwrite_param(name); };
  models::for_each_param(*files.weights, model->plan_->outline(), family, put, {.memory = memory, .seconds = &reads});
  model->hash_ = fingerprint.hash();
  seconds.weights = watch.lap();
  seconds.reading = reads.reading;
  seconds.converting = reads.converting;
  for (const PreparedEntry& entry : usual.entries()) session.add_entry(entry);
  seconds.compiling = usual.seconds();
  const auto& caches = model->plan_->caches();
  if (!caches.empty()) session.storage(caches.front().name);  // clears the cache, before anyone waits
  seconds.finishing = watch.lap();
  seconds.whole = whole.seconds();
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
    running.reads_ = run.reads;
    running.dispatches_ += session_.kernel_count(run.entry.name);
  }
  return running;
}

serving::StepResults Model::Running::read(const serving::Step& step) const {
  TensorMap outputs;
  for (const std::string& name : reads_) outputs.emplace(name, result_.get(name));
  if (reads_.empty()) result_.wait();  // otherwise prefill steps would queue up, and report their errors only later
  return results_of(step, outputs);
}

TensorMap Model::text_inputs(const serving::TextBlocks& blocks, std::int64_t start,
                             std::span<const std::int32_t> tokens) const {
  const std::int64_t count = std::ssize(tokens);
  HostTensor positions(DType::i32, {1, count});
  for (std::int64_t i = 0; i < count; ++i) positions.set_number(i, static_cast<double>(start + i));
  const auto table_of = [&](std::vector<std::int32_t> table) {
    table.resize(static_cast<std::size_t>(scheduling().block_buckets.back()), 0);
    return integers({1, std::ssize(table)}, table);
  };
  TensorMap inputs{{"ids", integers({1, count}, tokens)},
                   {"positions", std::move(positions)},
                   {"lengths", integers({1}, std::vector<std::int32_t>{static_cast<std::int32_t>(start + count)})},
                   {"table", table_of(blocks.table())}};
  for (std::size_t group = 0; group < cache().windowed.size(); ++group)
    inputs.emplace(models::table_name(cache().windowed[group].window), table_of(blocks.windowed(group)));
  if (scheduling().state_slots > 0)
    inputs.emplace("slots", integers({1}, std::vector<std::int32_t>{scheduling().state_slots}));
  return inputs;
}

std::vector<float> Model::score(const serving::TextBlocks& blocks, std::int64_t start,
                                std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  add_entry_once("score", [&] {
    return score_graph(plan_->graph_settings(), scheduling().chunk, scheduling().block_buckets.back());
  });
  TensorMap inputs = text_inputs(blocks, start, tokens);
  inputs.emplace("targets", integers({1, std::ssize(next)}, next));
  const HostTensor result = session_.run("score", inputs).get("output");
  return {result.f32().begin(), result.f32().end()};
}

HostTensor Model::logits(const serving::TextBlocks& blocks, std::int64_t start, std::span<const std::int32_t> tokens) {
  add_entry_once("logits", [&] {
    return logits_graph(plan_->graph_settings(), scheduling().chunk, scheduling().block_buckets.back());
  });
  return session_.run("logits", text_inputs(blocks, start, tokens)).get("output");
}

HostTensor Model::hidden(const serving::TextBlocks& blocks, std::int64_t start, std::span<const std::int32_t> tokens) {
  add_entry_once("hidden", [&] {
    return hidden_graph(plan_->graph_settings(), scheduling().chunk, scheduling().block_buckets.back());
  });
  return session_.run("hidden", text_inputs(blocks, start, tokens)).get("output");
}

void Model::add_entry_once(const std::string& name, const std::function<Graph()>& make_graph) {
  const std::lock_guard lock(mutex_);
  if (!session_.has_entry(name)) session_.add_entry(name, make_graph());
}

const std::vector<CacheSpec>& Model::caches_of(std::optional<std::size_t> group) const {
  return group ? plan_->windowed_caches().at(*group) : plan_->caches();
}

namespace {

std::string entry_for(const char* what, std::optional<std::size_t> group) {
  return group ? fmt::format("{} of group {}", what, *group) : what;
}

}  // namespace

TensorMap Model::read_blocks(std::span<const serving::Block> blocks, std::optional<std::size_t> group) {
  return read_rows(entry_for("read blocks", group), caches_of(group), blocks);
}

void Model::write_blocks(std::span<const serving::Block> blocks, const TensorMap& values,
                         std::optional<std::size_t> group) {
  write_rows(entry_for("write blocks", group), caches_of(group), blocks, values);
}

TensorMap Model::read_states(std::span<const std::int32_t> slots) {
  return read_rows("read states", plan_->states(), slots);
}

void Model::write_states(std::span<const std::int32_t> slots, const TensorMap& values) {
  write_rows("write states", plan_->states(), slots, values);
}

TensorMap Model::read_rows(const std::string& entry, const std::vector<CacheSpec>& caches,
                           std::span<const std::int32_t> blocks) {
  TensorMap all;
  if (caches.empty()) return all;
  add_entry_once(entry, [&] { return read_graph(caches); });
  for (const CacheSpec& cache : caches) {
    Sizes shape = evaluate(cache.shape, {});
    shape[0] = std::ssize(blocks);
    all.emplace(cache.name, HostTensor(cache.dtype, shape));
  }
  for (std::size_t at = 0; at < blocks.size(); at += moved_blocks) {
    const auto some = blocks.subspan(at, std::min<std::size_t>(moved_blocks, blocks.size() - at));
    const Result result = session_.run(entry, {{"from", block_numbers(some, 0)}});
    for (auto& [name, values] : all) {
      const HostTensor part = result.get(name + blocks_suffix);
      const std::size_t bytes = part.bytes().size() / moved_blocks;
      std::memcpy(values.bytes().data() + at * bytes, part.bytes().data(), some.size() * bytes);
    }
  }
  return all;
}

void Model::write_rows(const std::string& entry, const std::vector<CacheSpec>& caches,
                       std::span<const std::int32_t> blocks, const TensorMap& values) {
  if (caches.empty()) return;
  add_entry_once(entry, [&] { return write_graph(caches); });
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
    session_.run(entry, inputs);
  }
}

std::int64_t Model::activation_bytes() const {
  std::int64_t most = 0;
  for (const EntryInfo& entry : session_.entries())
    most = std::max(most, session_.memory_report(entry.name).activations);
  return most;
}

std::string Model::fingerprint() const {
  return fmt::format("{} {} {:016x}", plan_->config().text("model_type"), jerboa::name(plan_->weights()), hash_);
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
