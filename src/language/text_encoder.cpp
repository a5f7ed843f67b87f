#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/language/text_encoder.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/device_kind.h>

#include "base/parse_json.h"
#include "language/embedding_modules.h"
#include "language/half_range.h"
#include "language/model_files.h"
#include "language/storage_bytes.h"
#include "steps/encoder_graph.h"

namespace jerboa {
namespace {

using detail::Activation;
using detail::EmbeddingModules;

constexpr int longest_by_default = 8192;
constexpr std::int64_t shortest_entry = 16;  // entries are compiled for texts of up to 16, 32, 64 … tokens

int text_limit(const models::Config& config) {
  const models::Family& family = models::family_of(config);
  // Encoders have tables of positions, for which their classes have a default; a decoder that names no limit has none.
  const int otherwise = family.graphs.encoder ? 512 : models::Config::largest_size;
  const int rows = config.size("max_position_embeddings", config.size("n_positions", otherwise));
  return rows - (family.first_position ? family.first_position(config) : 0);
}

int context_of(const models::Config& config, const EmbeddingModules& modules, int requested) {
  const int most = text_limit(config);
  if (requested < 0 || requested > most)
    throw UsageError(
        fmt::format("{}: the model supports texts of up to {} tokens, not {}", config.origin(), most, requested));
  if (requested > 0) return requested;
  return std::min({most, longest_by_default, modules.max_length.value_or(most)});
}

// A batch must keep a device busy, and its activations should stay in the CPU's caches.
std::int64_t batch_tokens_for(const Device& device) { return is_gpu(device) ? 16384 : 1024; }

Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::tanh: return tanh(x);
    case Activation::sigmoid: return sigmoid(x);
    case Activation::relu: return relu(x);
    case Activation::gelu: return gelu(x);
    case Activation::silu: return silu(x);
    case Activation::none: break;
  }
  return x;
}

Tensor embedding_of(const EmbeddingModules& modules, const Tensor& hidden, const Inputs& in) {
  std::vector<Operand> pooled;
  const Tensor skipped = in.has("skipped") ? in["skipped"] : Tensor();
  for (const models::Pooling kind : modules.poolings)
    pooled.emplace_back(models::pool(hidden, in["lengths"], kind, skipped));
  Tensor x = pooled.size() == 1 ? pooled[0].tensor() : concat(pooled);
  for (const detail::EmbeddingStep& step : modules.steps) {
    if (!step) {
      x = models::unit_rows(x);
      continue;
    }
    const Tensor weight = param_input(step->name + ".linear.weight", {step->out, step->in}, {.trainable = false});
    x = matmul(x, weight, {.transpose_b = true});
    if (step->bias) x = x + param_input(step->name + ".linear.bias", {step->out}, {.trainable = false});
    x = activated(x, step->activation);
  }
  return x;
}

Graph text_graph(const models::Config& config, const EmbeddingModules& modules, const Dim& batch, const Dim& time,
                 DType weights, bool classify, Precision precision = Precision::full) {
  InputSpecs specs = language::encoder_inputs(config, batch, time);
  if (!classify && !modules.include_prompt) specs.push_back({"skipped", {batch}, DType::i32});
  const auto results_of = [&](const Inputs& in) {
    const auto results = models::family_of(config).encode(config, {.tensors = in.all(), .weights = weights});
    if (classify) return results.at("logits");
    return embedding_of(modules, results.at("hidden"), in);
  };
  return forward_graph(specs, results_of, {}, precision);
}

DType checked_weights(DType weights) {
  if (!is_float(weights) && weights != DType::i8 && weights != DType::i4)
    throw UsageError(fmt::format("weights can be f32, f16, bf16, int8 or int4, not {}", name(weights)));
  return weights;
}

void upload(Session& session, const EmbeddingModules& modules) {
  for (const detail::EmbeddingStep& step : modules.steps) {
    if (!step) continue;
    session.upload_param(step->name + ".linear.weight", step->weight.bytes());
    if (step->bias) session.upload_param(step->name + ".linear.bias", step->bias->bytes());
  }
}

void check_lower_case(const EmbeddingModules& modules, const Tokenizer& tokenizer) {
  if (modules.lower_case && tokenizer.encode("A").ids != tokenizer.encode("a").ids)
    throw FileError(fmt::format("{}: do_lower_case is true, which is only supported where the tokenizer does that",
                                modules.transformer.string()));
}

void normalise_row(std::span<float> row) {
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * static_cast<double>(value);
  const double scale = 1 / std::max(std::sqrt(squares), 1e-12);
  for (float& value : row) value = static_cast<float>(value * scale);
}

void softmax_row(std::span<float> row) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float& value : row) sum += value = std::exp(value - largest);
  for (float& value : row) value = static_cast<float>(value / sum);
}

enum class Scores : std::uint8_t { logits, sigmoid, softmax };

// The activation that transformers' pipelines and sentence-transformers' cross-encoders apply to the logits.
Scores scores_of(const models::Config& config, std::size_t classes) {
  const auto named = config.section("sentence_transformers");
  const models::Config& source = named && named->has("activation_fn") ? *named : config;
  const std::string key = &source == &config ? "sbert_ce_default_activation_function" : "activation_fn";
  if (source.has(key)) {
    const auto activation = detail::torch_activation(source.text(key));
    if (activation == Activation::none) return Scores::logits;
    if (activation == Activation::sigmoid) return Scores::sigmoid;
    source.fail(key, "is not supported");
  }
  const std::string problem = config.text("problem_type", "");
  if (problem == "regression") return Scores::logits;
  return problem == "multi_label_classification" || classes == 1 ? Scores::sigmoid : Scores::softmax;
}

}  // namespace

TextEncoder TextEncoder::load(const std::filesystem::path& path, const TextEncoderOptions& options) {
  EmbeddingModules modules = detail::read_embedding_modules(path);
  detail::ModelFiles files = detail::open_model(modules.transformer);
  const models::Family& family = models::family_of(files.config);
  if (!family.graphs.encoder && !family.graphs.decoder)
    throw UsageError(fmt::format("{}: {} models do not read text", files.config.origin(), family.model_type));
  if (!family.graphs.encoder && !files.config.flag("is_causal", true))
    files.config.fail("is_causal", "is not supported: tokens of this family see only those before them");
  if (modules.poolings.empty())
    modules.poolings = {family.graphs.encoder ? models::Pooling::mean : models::Pooling::last};
  check_lower_case(modules, files.tokenizer);
  const Device device = options.device ? *options.device : Device::best();
  const DType weights = options.weights ? checked_weights(*options.weights) : files.usual_weights;
  const int context = context_of(files.config, modules, options.context);

  const Graph model_graph = language::encoder_graph(files.config, weights, 1, 1);  // without dense layers after pooling
  models::check_params(*files.weights, model_graph, family);  // before allocating what config.json asks for
  const Graph whole = text_graph(files.config, modules, 1, 1, weights, false);
  if (options.before_allocation) options.before_allocation(detail::storage_bytes({&model_graph, &whole}));
  Session session(device);
  session.declare(model_graph);
  session.declare(whole);
  models::for_each_param(*files.weights, model_graph, family,
                         [&](const models::ParamValues& values) {
                           if (options.precision == Precision::mixed_f16)
                             detail::check_fits_halves(model_graph, values.name, values.bytes);
                           if (!values.is_in_place) session.upload_param(values.name, values.bytes);
                         },
                         {.memory = [&](const std::string& name) { return session.overwrite_param(name); }});
  upload(session, modules);

  TextEncoder encoder(std::move(session), std::move(files.tokenizer), std::move(files.config));
  encoder.tokenizer_.set_truncation(Truncation{.max_length = static_cast<std::size_t>(context)});
  encoder.weights_ = weights;
  encoder.precision_ = options.precision;
  encoder.context_ = context;
  encoder.batch_tokens_ = batch_tokens_for(device);
  encoder.dimensions_ = whole.shape(whole.outputs.at(0).tensor).back().upper_bound();
  if (models::classifies(encoder.config_)) encoder.classes_ = models::class_names(encoder.config_);
  encoder.modules_ = std::make_shared<const EmbeddingModules>(std::move(modules));
  return encoder;
}

Similarity TextEncoder::similarity_kind() const { return modules_->similarity; }
const std::map<std::string, std::string>& TextEncoder::prompts() const { return modules_->prompts; }
std::string TextEncoder::query_prompt() const { return prompts().contains("query") ? "query" : ""; }
std::string TextEncoder::document_prompt() const {
  for (const char* name : {"document", "passage", "corpus"})
    if (prompts().contains(name)) return name;
  return "";
}

std::string TextEncoder::prompt_for(const EmbedOptions& options) const {
  if (options.prompt) return *options.prompt;
  const std::string& name = options.prompt_name.empty() ? modules_->default_prompt : options.prompt_name;
  if (name.empty()) return "";
  if (const auto found = prompts().find(name); found != prompts().end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [known_name, text] : prompts()) known.push_back(in_quotes(known_name));
  throw UsageError(fmt::format("the model has no prompt named {}; available: {}", in_quotes(name),
                               known.empty() ? "none" : shortened(fmt::format("{}", fmt::join(known, ", ")), 400)));
}

std::string TextEncoder::entry_for(std::int64_t time, bool classify) {
  const auto rounded = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(time)));
  const std::int64_t most = std::min(std::max(rounded, shortest_entry), std::int64_t{context_});
  std::string entry = fmt::format("{} {}", classify ? "classify" : "embed", most);
  if (session_.has_entry(entry)) return entry;
  const Dim batch = Dim::symbol("B", std::max<std::int64_t>(1, batch_tokens_ / most));
  session_.add_entry(entry,
                     text_graph(config_, *modules_, batch, Dim::symbol("T", most), weights_, classify, precision_));
  return entry;
}

// Counts tokens as sentence-transformers does: special tokens before the prompt count, those after it do not.
std::int64_t TextEncoder::prompt_tokens(const std::string& prompt) const {
  if (prompt.empty()) return 0;
  const Encoding encoding = tokenizer_.encode(prompt);
  const bool has_end = !encoding.special_mask.empty() && encoding.special_mask.back() != 0;
  return static_cast<std::int64_t>(encoding.size()) - (has_end ? 1 : 0);
}

Embeddings TextEncoder::run(const std::vector<Encoding>& encodings, bool classify, std::int64_t skipped) {
  Embeddings all{std::ssize(encodings), classify ? std::ssize(classes_) : dimensions_, {}};
  all.values.resize(static_cast<std::size_t>(all.count * all.dimensions));
  // Texts of similar length share a batch, so that little of it is padding.
  std::vector<std::size_t> order(encodings.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return encodings[a].size() > encodings[b].size(); });
  const bool with_types = models::family_of(config_).graphs.encoder != nullptr;
  // Tokenizers may number the texts of a pair although the model has a single type.
  const std::int32_t last_type = std::max(config_.integer("type_vocab_size", 2), 1) - 1;
  for (std::size_t begin = 0; begin < order.size();) {
    const auto time = static_cast<std::int64_t>(encodings[order[begin]].size());
    if (time == 0) throw UsageError("a text has no tokens, so there is nothing to encode");
    const std::string entry = entry_for(time, classify);
    const std::int64_t most = session_.graph(entry).shape(session_.graph(entry).find("lengths"))[0].upper_bound();
    const std::int64_t rows = std::min<std::int64_t>(most, std::ssize(order) - static_cast<std::ptrdiff_t>(begin));
    HostTensor ids(DType::i32, {rows, time}), types(DType::i32, {rows, time}), lengths(DType::i32, {rows});
    for (std::int64_t row = 0; row < rows; ++row) {
      const Encoding& text = encodings[order[begin + static_cast<std::size_t>(row)]];
      std::copy(text.ids.begin(), text.ids.end(), ids.as<std::int32_t>().begin() + row * time);
      std::transform(text.type_ids.begin(), text.type_ids.end(), types.as<std::int32_t>().begin() + row * time,
                     [&](std::int32_t type) { return std::min(type, last_type); });
      lengths.set_number(row, static_cast<double>(text.size()));
    }
    TensorMap inputs{{"ids", std::move(ids)}, {"lengths", std::move(lengths)}};
    if (with_types) inputs.emplace("token_types", std::move(types));
    if (!classify && !modules_->include_prompt) {
      HostTensor counts(DType::i32, {rows});
      for (std::int64_t row = 0; row < rows; ++row) counts.set_number(row, static_cast<double>(skipped));
      inputs.emplace("skipped", std::move(counts));
    }
    const HostTensor result = session_.run(entry, inputs).get("output");
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto from = result.f32().begin() + row * all.dimensions;
      const auto place = static_cast<std::int64_t>(order[begin + static_cast<std::size_t>(row)]) * all.dimensions;
      std::copy(from, from + all.dimensions, all.values.begin() + place);
    }
    begin += static_cast<std::size_t>(rows);
  }
  return all;
}

Embeddings TextEncoder::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  if (options.dimensions < 0 || options.dimensions > dimensions_)
    throw UsageError(
        fmt::format("embeddings of this model have {} dimensions, not {}", dimensions_, options.dimensions));
  const std::string prompt = prompt_for(options);
  std::vector<std::string> prompted;
  if (!prompt.empty())
    for (const std::string& text : texts) prompted.push_back(prompt + text);
  const auto encodings = tokenizer_.encode_batch(prompt.empty() ? texts : std::span<const std::string>(prompted));
  Embeddings all = run(encodings, false, modules_->include_prompt ? 0 : prompt_tokens(prompt));
  const std::int64_t kept = options.dimensions > 0 ? options.dimensions : dimensions_;
  if (kept < all.dimensions) {
    for (std::int64_t row = 1; row < all.count; ++row)
      std::copy_n(all.values.begin() + row * all.dimensions, kept, all.values.begin() + row * kept);
    all.dimensions = kept;
    all.values.resize(static_cast<std::size_t>(all.count * kept));
  }
  if (options.normalise.value_or(modules_->normalise))
    for (std::int64_t row = 0; row < all.count; ++row)
      normalise_row(
          std::span(all.values).subspan(static_cast<std::size_t>(row * kept), static_cast<std::size_t>(kept)));
  return all;
}

Embeddings TextEncoder::embed(std::initializer_list<std::string> texts, const EmbedOptions& options) {
  return embed(std::span<const std::string>(texts.begin(), texts.size()), options);
}

Embeddings TextEncoder::scores(const std::vector<Encoding>& encodings) {
  if (classes_.empty())
    throw UsageError(
        fmt::format("{}: the model has no classification head (…ForSequenceClassification)", config_.origin()));
  Embeddings all = run(encodings, true, 0);
  const Scores kind = scores_of(config_, classes_.size());
  if (kind == Scores::sigmoid)
    for (float& value : all.values) value = 1 / (1 + std::exp(-value));
  if (kind == Scores::softmax)
    for (std::int64_t row = 0; row < all.count; ++row)
      softmax_row(std::span(all.values).subspan(static_cast<std::size_t>(row * all.dimensions), classes_.size()));
  return all;
}

Embeddings TextEncoder::classify(std::span<const std::string> texts) { return scores(tokenizer_.encode_batch(texts)); }

Embeddings TextEncoder::classify_pairs(std::span<const std::pair<std::string, std::string>> pairs) {
  std::vector<Encoding> encodings;
  for (const auto& [first, second] : pairs) encodings.push_back(tokenizer_.encode_pair(first, second));
  return scores(encodings);
}

std::vector<Match> TextEncoder::rerank(const std::string& query, std::span<const std::string> documents) {
  if (classes_.size() > 1)
    throw UsageError(fmt::format("{}: the model has {} classes; reranking needs one with a single score",
                                 config_.origin(), classes_.size()));
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& document : documents) pairs.emplace_back(query, document);
  const Embeddings all = classify_pairs(pairs);
  std::vector<Match> matches;
  for (std::int64_t i = 0; i < all.count; ++i) matches.push_back({i, all.row(i)[0]});
  std::stable_sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) { return a.score > b.score; });
  return matches;
}

}  // namespace jerboa
