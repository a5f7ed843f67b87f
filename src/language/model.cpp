#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/language/model.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/runtime/device_kind.h>

#include "language/cache_graphs.h"
#include "language/model_files.h"
#include "language/model_sizes.h"
#include "language/step_graph.h"
#include "language/token_bytes.h"

namespace jerboa::language {
namespace {

DType checked(DType weights) {
  if (!is_float(weights) && weights != DType::i8 && weights != DType::i4)
    throw UsageError(fmt::format("weights can be f32, f16, bf16, int8 or int4, not {}", name(weights)));
  return weights;
}

HostTensor integers(Sizes shape, std::span<const std::int32_t> values) { return {std::move(shape), values}; }
HostTensor floats(Sizes shape, std::span<const float> values) { return {std::move(shape), values}; }
HostTensor words(Sizes shape, std::span<const std::uint32_t> values) {
  HostTensor out(DType::u32, std::move(shape));
  std::copy(values.begin(), values.end(), out.as<std::uint32_t>().begin());
  return out;
}

// Of the rows that want a token, whether any is sampled.
Drawing drawing_of(const serving::Step& step) {
  Drawing drawing = Drawing::none;
  for (std::size_t row = 0; row < step.plan.size(); ++row) {
    if (step.plan[row].wanted != serving::Wanted::token) continue;
    if (step.sampling.temperature[row] > 0) return Drawing::sampled;
    drawing = Drawing::greedy;
  }
  return drawing;
}

// The number of the draw of each output: a row's last outputs are one after each of its drafted tokens.
std::vector<std::uint32_t> draw_numbers(const serving::Step& step) {
  const auto outputs = static_cast<std::size_t>(step.outputs);
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(step.rows) * outputs);
  for (std::size_t row = 0; row < step.plan.size(); ++row) {
    const std::size_t first = outputs - 1 - static_cast<std::size_t>(step.plan[row].drafts);
    for (std::size_t i = first; i < outputs; ++i)
      numbers[row * outputs + i] = step.sampling.draw[row] + static_cast<std::uint32_t>(i - first);
  }
  return numbers;
}

TensorMap inputs_of(const serving::Step& step, const EntryKey& key, bool carries, std::int32_t padding_slot) {
  const std::int64_t rows = step.rows, time = step.time;
  TensorMap inputs{{"ids", integers({rows, time}, step.ids)},
                   {"positions", integers({rows, time}, step.positions)},
                   {"lengths", integers({rows}, step.lengths)},
                   {"table", integers({rows, step.blocks}, step.table)}};
  if (!step.states.empty()) {
    std::vector<std::int32_t> slots = step.states;
    std::replace(slots.begin(), slots.end(), serving::no_slot, padding_slot);
    inputs.emplace("slots", integers({rows}, slots));
  }
  if (carries) inputs.emplace("carried", integers({rows}, step.carried));
  if (key.masked) inputs.emplace("mask", words({rows, std::ssize(step.mask) / rows}, step.mask));
  if (key.drawing != Drawing::sampled) return inputs;
  const serving::SamplingInputs& sampling = step.sampling;
  inputs.emplace("temperature", floats({rows}, sampling.temperature));
  inputs.emplace("top_k", integers({rows}, sampling.top_k));
  inputs.emplace("top_p", floats({rows}, sampling.top_p));
  inputs.emplace("min_p", floats({rows}, sampling.min_p));
  inputs.emplace("seed", words({rows, 2}, sampling.seed));
  inputs.emplace("draw", words({rows, step.outputs}, draw_numbers(step)));
  return inputs;
}

std::int64_t count_parameters(const Graph& graph) {
  std::set<std::string> known;  // a table may occur twice: for lookups, and quantised
  std::int64_t count = 0;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || tensor.name.ends_with(models::scales_suffix) ||
        tensor.name.ends_with(models::mins_suffix))
      continue;
    const bool quantised = tensor.name.ends_with(models::quantised_suffix);
    const std::size_t length = tensor.name.size() - (quantised ? models::quantised_suffix.size() : 0);
    if (known.insert(tensor.name.substr(0, length)).second) count += element_count(tensor.type.shape).upper_bound();
  }
  return count;
}

std::int64_t count_weight_bytes(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param)
      bytes += element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8;
  return bytes;
}

std::vector<std::string> names_of_vectors(const Graph& graph) {
  std::vector<std::string> names;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param && tensor.type.shape.size() == 1) names.push_back(tensor.name);
  return names;
}

HostTensor block_numbers(std::span<const serving::Block> blocks, serving::Block padding) {
  std::vector<serving::Block> all(blocks.begin(), blocks.end());
  all.resize(moved_blocks, padding);
  return integers({moved_blocks}, all);
}

}  // namespace

Model::Model(Session session, Tokenizer tokenizer, models::Config config)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)), config_(std::move(config)) {}

Model::~Model() = default;

std::shared_ptr<Model> Model::load(const std::filesystem::path& path, const LanguageModelOptions& options) {
  check_options(options);
  detail::ModelFiles files = detail::open_model(path);
  const models::Family& family = models::family_of(files.config);
  const Device device = options.device ? *options.device : Device::best();
  const DType type = options.weights ? checked(*options.weights) : files.usual_weights;
  const bool mixes = type == DType::f16 && multiplies_f16_matrices(device);

  std::shared_ptr<Model> model(new Model(Session(device), std::move(files.tokenizer), std::move(files.config)));
  model->weights_ = type;
  model->precision_ = options.precision.value_or(mixes ? Precision::mixed_f16 : Precision::full);
  model->template_ = std::move(files.chat_template);
  model->end_tokens_ = files.generation.end_tokens;
  model->sampling_ = files.generation.sampling;
  model->deterministic_ = options.deterministic;
  model->samples_on_device_ = options.device_sampling.value_or(is_gpu(device));
  model->context_ = context_of(model->config_, options.context);
  model->cache_ = {.blocks = 1,
                   .block = options.block > 0 ? options.block : usual_block,
                   .dtype = options.cache.value_or(is_gpu(device) && type == DType::f16 ? DType::f16 : DType::f32)};

  const EntryKey first{.drawing = Drawing::none};
  const Graph outline = step_graph(model->graph_settings(), first);
  models::check_params(*files.weights, outline, family);  // before allocating what config.json asks for
  model->vocabulary_size_ = outline.shape(outline.find("logits")).back().upper_bound();
  model->choose_sizes(options);

  const Graph decode = step_graph(model->graph_settings(), first);
  for (const CacheSpec& cache : cache_specs(model->graph_settings()))
    (cache.kind == models::CacheKind::state ? model->states_ : model->caches_).push_back(cache);
  model->parameters_ = count_parameters(decode);
  model->weight_bytes_ = count_weight_bytes(decode);
  model->vectors_ = names_of_vectors(decode);
  Session& session = model->session_;
  session.declare(decode);
  models::for_each_param(*files.weights, decode, family,
                         [&](const models::ParamValues& values) { session.upload_param(values.name, values.bytes); });
  model->compile_usual_entries();
  if (!model->caches_.empty()) session.storage(model->caches_.front().name);  // clears the cache, before anyone waits
  return model;
}

// Of the cache, and of the steps over it.
void Model::choose_sizes(const LanguageModelOptions& options) {
  const bool on_gpu = is_gpu(session_.device());
  std::int64_t block_bytes = 0;
  bool has_states = false;
  for (const CacheSpec& cache : cache_specs(graph_settings())) {
    has_states |= cache.kind == models::CacheKind::state;
    if (cache.kind != models::CacheKind::state)
      block_bytes += element_count(cache.shape).value() * bits(cache.dtype) / 8;
  }
  const int sequences = sequences_of(options, on_gpu);
  cache_.blocks = cache_blocks(options, context_, cache_.block, sequences, block_bytes, on_gpu);
  cache_.bytes = block_bytes * cache_.blocks;
  context_ = static_cast<int>(std::min<std::int64_t>(context_, std::int64_t{cache_.blocks} * cache_.block));
  scheduling_ =
      scheduling_for(options, cache_, context_, sequences, static_cast<int>(vocabulary_size_), on_gpu, has_states);
}

// What nearly every text needs, so that the first one does not wait for it.
void Model::compile_usual_entries() {
  const Drawing drawing = sampling_.temperature == 0 ? Drawing::greedy
                          : samples_on_device_       ? Drawing::sampled
                                                     : Drawing::none;
  const serving::SchedulerOptions& options = scheduling_;
  const int rows = options.row_buckets.front(), table = options.block_buckets.front();
  entry_for({.rows = rows, .table = table, .drawing = drawing});
  if (!deterministic_ && options.chunk > 1)
    entry_for(
        {.rows = rows, .time = prompt_time(options, rows), .table = table, .is_prompt = true, .drawing = drawing});
}

GraphSettings Model::graph_settings() const {
  return {.config = config_,
          .weights = weights_,
          .cache = cache_.dtype,
          .blocks = cache_.blocks,
          .block = cache_.block,
          .slots = scheduling_.state_slots > 0 ? scheduling_.state_slots + 2
                                               : 0,  // for texts that are scored, and for padding
          .carried_rows = scheduling_.pipelined ? scheduling_.max_rows : 0,
          .precision = precision_,
          .is_gpu = is_gpu(session_.device())};
}

std::string Model::entry_for(const EntryKey& key) {
  const std::lock_guard lock(mutex_);
  std::string name = key.name();
  if (!session_.has_entry(name)) session_.add_entry(name, step_graph(graph_settings(), key));
  return name;
}

Model::Running Model::run(const serving::Step& step) {
  copy_states(step.state_copies);
  copy_blocks(step.copies);
  EntryKey key{.rows = step.rows,
               .time = step.time,
               .table = step.blocks,
               .outputs = step.outputs,
               .is_prompt = step.time > 1 && step.outputs == 1,
               .drawing = drawing_of(step),
               .masked = !step.mask.empty()};
  if (key.is_prompt) key.time = prompt_time(scheduling_, step.rows);
  if (key.drawing == Drawing::none) key.masked = false;
  const std::string entry = entry_for(key);
  Running running;
  running.result_ =
      session_.run(entry, inputs_of(step, key, scheduling_.pipelined && !key.is_prompt, scheduling_.state_slots + 1));
  running.has_tokens_ = key.drawing != Drawing::none;
  running.dispatches_ = session_.kernel_count(entry);
  return running;
}

serving::StepResults Model::Running::read(const serving::Step& step) const {
  serving::StepResults results;
  if (has_tokens_) {
    const HostTensor tokens = result_.get("tokens");
    results.tokens.assign(tokens.i32().begin(), tokens.i32().end());
  }
  const auto wants_logits = [](const serving::Row& row) { return row.wanted == serving::Wanted::logits; };
  if (std::none_of(step.plan.begin(), step.plan.end(), wants_logits)) {
    if (!has_tokens_) result_.get("logits");
    return results;
  }
  const HostTensor logits = result_.get("logits");
  const std::span<const float> all = logits.f32();
  const std::size_t size = all.size() / static_cast<std::size_t>(step.rows);
  results.logits.resize(step.plan.size());
  for (std::size_t row = 0; row < step.plan.size(); ++row)
    if (wants_logits(step.plan[row])) {
      const auto values = all.subspan(row * size, size);
      results.logits[row].assign(values.begin(), values.end());
    }
  return results;
}

TensorMap Model::text_inputs(const serving::PageTable& table, std::int64_t start,
                             std::span<const std::int32_t> tokens) const {
  const std::int64_t count = std::ssize(tokens);
  HostTensor positions(DType::i32, {1, count});
  for (std::int64_t i = 0; i < count; ++i) positions.set_number(i, static_cast<double>(start + i));
  std::vector<std::int32_t> blocks(table.blocks().begin(), table.blocks().end());
  blocks.resize(static_cast<std::size_t>(scheduling_.block_buckets.back()), 0);
  TensorMap inputs{{"ids", integers({1, count}, tokens)},
                   {"positions", std::move(positions)},
                   {"lengths", integers({1}, std::vector<std::int32_t>{static_cast<std::int32_t>(start + count)})},
                   {"table", integers({1, std::ssize(blocks)}, blocks)}};
  if (scheduling_.state_slots > 0)
    inputs.emplace("slots", integers({1}, std::vector<std::int32_t>{scheduling_.state_slots}));
  return inputs;
}

std::vector<float> Model::score(const serving::PageTable& table, std::int64_t start,
                                std::span<const std::int32_t> tokens, std::span<const std::int32_t> next) {
  add_entry_once("score",
                 [&] { return score_graph(graph_settings(), scheduling_.chunk, scheduling_.block_buckets.back()); });
  TensorMap inputs = text_inputs(table, start, tokens);
  inputs.emplace("targets", integers({1, std::ssize(next)}, next));
  const HostTensor result = session_.run("score", inputs).get("output");
  return {result.f32().begin(), result.f32().end()};
}

HostTensor Model::logits(const serving::PageTable& table, std::int64_t start, std::span<const std::int32_t> tokens) {
  add_entry_once("logits",
                 [&] { return logits_graph(graph_settings(), scheduling_.chunk, scheduling_.block_buckets.back()); });
  return session_.run("logits", text_inputs(table, start, tokens)).get("output");
}

template <class MakeGraph>
void Model::add_entry_once(const std::string& name, const MakeGraph& make_graph) {
  const std::lock_guard lock(mutex_);
  if (!session_.has_entry(name)) session_.add_entry(name, make_graph());
}

void Model::copy_blocks(std::span<const serving::BlockCopy> copies) {
  if (copies.empty()) return;
  add_entry_once("copy blocks", [&] { return copy_graph(caches_); });
  for (const auto run : independent_runs(copies)) {
    std::vector<serving::Block> from, to;
    for (const serving::BlockCopy& copy : run) {
      from.push_back(copy.from);
      to.push_back(copy.to);
    }
    session_.run("copy blocks", {{"from", block_numbers(from, 0)}, {"to", block_numbers(to, -1)}});
  }
}

// All of them at once: what each slot holds after the copies, in terms of what it holds now.
void Model::copy_states(std::span<const serving::SlotCopy> copies) {
  if (copies.empty()) return;
  const int slots = graph_settings().slots;
  add_entry_once("copy states", [&] { return rearrange_graph(states_, slots); });
  std::vector<std::int32_t> from(static_cast<std::size_t>(slots));
  std::iota(from.begin(), from.end(), 0);
  for (const serving::SlotCopy& copy : copies)
    from[static_cast<std::size_t>(copy.to)] =
        copy.from == serving::no_slot ? serving::no_slot : from[static_cast<std::size_t>(copy.from)];
  session_.run("copy states", {{"from", integers({slots}, from)}});
}

TensorMap Model::read_blocks(std::span<const serving::Block> blocks) {
  add_entry_once("read blocks", [&] { return read_graph(caches_); });
  TensorMap all;
  for (const CacheSpec& cache : caches_) {
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
  add_entry_once("write blocks", [&] { return write_graph(caches_); });
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
  std::uint64_t hash = static_cast<std::uint64_t>(parameters_);
  const auto mix = [&](std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash = split_mix(hash + static_cast<std::uint64_t>(byte) + split_mix_step);
  };
  for (const std::string& name : vectors_) {
    mix(std::as_bytes(std::span(name)));
    mix(session_.download_param(name).bytes());
  }
  return fmt::format("{} {} {:016x}", config_.text("model_type"), jerboa::name(weights_), hash);
}

std::shared_ptr<const Vocabulary> Model::vocabulary() const {
  const std::lock_guard lock(mutex_);
  if (!vocabulary_)
    vocabulary_ = std::make_shared<const Vocabulary>(detail::token_bytes(tokenizer_, vocabulary_size_), end_tokens_);
  return vocabulary_;
}

void Model::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens)
    if (token < 0 || vocabulary_size_ <= token)
      throw UsageError(fmt::format("there is no token {}; the model has {}{}", token, vocabulary_size_,
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
