#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/generate/stop.h>
#include <jerboa/language/language_model.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/device_kind.h>

#include "language/model_files.h"
#include "language/token_bytes.h"

namespace jerboa {
namespace {

constexpr int usual_context = 4096;  // for models that allow more than most users need

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The maximum length of a sequence.
int context_of(const models::Config& config, int requested) {
  const int most = config.size("max_position_embeddings", config.size("n_positions", usual_context));
  if (requested < 0 || requested > most)
    throw UsageError(
        fmt::format("{}: the model supports at most {} tokens of context, not {}", config.origin(), most, requested));
  return requested > 0 ? requested : std::min(most, usual_context);
}

InputSpecs step_inputs(const Dim& time) {
  return {{"ids", {1, time}, DType::i32}, {"positions", {1, time}, DType::i32}, {"lengths", {1}, DType::i32}};
}

Tensor logits_of(const models::Config& config, const Inputs& in, const models::CacheOptions& cache, int last,
                 DType weights) {
  return models::family_of(config).logits(config,
                                          {.tensors = in.all(), .cache = cache, .last = last, .weights = weights});
}

// The logits of the last of `time` tokens, which are appended to a sequence's cache.
Graph step_graph(const models::Config& config, const Dim& time, const models::CacheOptions& cache, DType weights,
                 Precision precision) {
  return forward_graph(
      step_inputs(time), [&](const Inputs& in) { return logits_of(config, in, cache, 1, weights); }, {}, precision);
}

// Large chunks keep a GPU's matrix units busy; the CPU gains nothing from more.
int chunk_for(const Device& device) { return is_gpu(device) ? 512 : 128; }

// The log-probability of each token of `targets` after the tokens so far.
Graph score_graph(const models::Config& config, const Dim& time, const models::CacheOptions& cache, DType weights) {
  InputSpecs specs = step_inputs(time);
  specs.push_back({"targets", {1, time}, DType::i32});
  return forward_graph(specs, [&](const Inputs& in) {
    const Tensor all = log_softmax(logits_of(config, in, cache, 0, weights));
    return squeeze(take_along_axis(all, unsqueeze(in["targets"], {-1})), {-1});
  });
}

DType checked(DType weights) {
  if (!is_float(weights) && weights != DType::i8 && weights != DType::i4)
    throw UsageError(fmt::format("weights can be f32, f16, bf16, int8 or int4, not {}", name(weights)));
  return weights;
}

// Whether a text is complete and cannot continue.
bool is_whole(Constraint& constraint, const Vocabulary& vocabulary) {
  if (!constraint.complete()) return false;
  TokenMask others = constraint.allowed();
  for (const int token : vocabulary.end_tokens()) others.set(static_cast<std::size_t>(token), false);
  return std::all_of(others.words().begin(), others.words().end(), [](std::uint64_t word) { return word == 0; });
}

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::end: return "end";
    case StopReason::length: return "length";
    case StopReason::stop: return "stop";
    case StopReason::context: return "context";
  }
  return {};
}

LanguageModel LanguageModel::load(const std::filesystem::path& path, const LanguageModelOptions& options) {
  if (options.chunk < 0)
    throw UsageError(fmt::format("chunk must be at least 1, or 0 for what suits the device, not {}", options.chunk));
  detail::ModelFiles files = detail::open_model(path);
  const models::Family& family = models::family_of(files.config);
  const Device device = options.device ? *options.device : Device::best();
  const int context = context_of(files.config, options.context);
  const int chunk = std::min(options.chunk > 0 ? options.chunk : chunk_for(device), context);
  const DType type = options.weights ? checked(*options.weights) : files.usual_weights;
  const models::CacheOptions cache{.capacity = context, .chunk = chunk};
  const bool mixes = type == DType::f16 && multiplies_f16_matrices(device);
  const Precision precision = options.precision.value_or(mixes ? Precision::mixed_f16 : Precision::full);
  const Graph decode = step_graph(files.config, 1, cache, type, Precision::full);
  models::check_params(*files.weights, decode, family);  // before allocating what config.json asks for
  Session session = create_session({{"decode", decode}}, {.device = device});
  if (chunk > 1)
    session.add_entry("prefill", step_graph(files.config, Dim::symbol("T", chunk), cache, type, precision));
  models::for_each_param(*files.weights, decode, family,
                         [&](const models::ParamValues& values) { session.upload_param(values.name, values.bytes); });

  LanguageModel model(std::move(session), std::move(files.tokenizer), std::move(files.config));
  model.template_ = std::move(files.chat_template);
  model.end_tokens_ = files.generation.end_tokens;
  model.sampling_ = files.generation.sampling;
  model.vocabulary_size_ = decode.shape(decode.find("logits")).back().upper_bound();
  model.context_ = context;
  model.chunk_ = chunk;
  model.weights_ = type;
  return model;
}

std::int64_t LanguageModel::parameters() const {
  std::set<std::string> known;  // a table may occur twice: for lookups, and quantised
  std::int64_t count = 0;
  for (const TensorInfo& tensor : session_.graph("decode").tensors) {
    if (tensor.storage != Storage::param || tensor.name.ends_with(models::scales_suffix) ||
        tensor.name.ends_with(models::mins_suffix))
      continue;
    const bool quantised = tensor.name.ends_with(models::quantised_suffix);
    const std::size_t length = tensor.name.size() - (quantised ? models::quantised_suffix.size() : 0);
    if (known.insert(tensor.name.substr(0, length)).second) count += element_count(tensor.type.shape).upper_bound();
  }
  return count;
}

std::shared_ptr<const Vocabulary> LanguageModel::vocabulary() {
  if (!vocabulary_)
    vocabulary_ = std::make_shared<const Vocabulary>(detail::token_bytes(tokenizer_, vocabulary_size_), end_tokens_);
  return vocabulary_;
}

// Appends tokens to the cache.
void LanguageModel::run(std::span<const std::int32_t> tokens, std::vector<float>& logits) {
  const auto count = static_cast<std::int64_t>(tokens.size()), before = static_cast<std::int64_t>(cached_.size());
  HostTensor ids({1, count}, tokens), positions(DType::i32, {1, count}), lengths(DType::i32, {1});
  for (std::int64_t i = 0; i < count; ++i) positions.set_number(i, static_cast<double>(before + i));
  lengths.set_number(0, static_cast<double>(before + count));
  const HostTensor result =
      session_.run(count == 1 ? "decode" : "prefill", {{"ids", ids}, {"positions", positions}, {"lengths", lengths}})
          .get("output");
  logits.assign(result.f32().begin(), result.f32().end());
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
}

void LanguageModel::check_tokens(std::span<const std::int32_t> tokens) const {
  for (const std::int32_t token : tokens)
    if (token < 0 || vocabulary_size_ <= token)
      throw UsageError(fmt::format("there is no token {}; the model has {}{}", token, vocabulary_size_,
                                   tokenizer_.id_to_token(token) ? ", fewer than its tokenizer" : ""));
}

std::vector<float> LanguageModel::next_logits(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw UsageError("at least one token is needed to predict the next");
  if (std::ssize(tokens) > context_)
    throw UsageError(
        fmt::format("{} tokens exceed the context of {}; shorten the text, or load the model with a larger context",
                    tokens.size(), context_));
  // Cached tokens are not recomputed, except for the last one, whose logits are needed.
  const auto common = std::mismatch(tokens.begin(), tokens.end() - 1, cached_.begin(), cached_.end()).first;
  check_tokens(tokens.subspan(static_cast<std::size_t>(common - tokens.begin())));
  cached_.resize(static_cast<std::size_t>(common - tokens.begin()));
  std::vector<float> logits;
  for (std::size_t at = cached_.size(); at < tokens.size(); at = cached_.size())
    run(tokens.subspan(at, std::min(tokens.size() - at, static_cast<std::size_t>(chunk_))), logits);
  return logits;
}

// The log-probabilities of the tokens that follow those given, which are appended to the cache.
void LanguageModel::score(std::span<const std::int32_t> tokens, std::span<const std::int32_t> next,
                          std::vector<float>& log_probabilities) {
  const auto count = static_cast<std::int64_t>(tokens.size()), before = static_cast<std::int64_t>(cached_.size());
  HostTensor ids({1, count}, tokens), targets({1, count}, next), positions(DType::i32, {1, count}),
      lengths(DType::i32, {1});
  for (std::int64_t i = 0; i < count; ++i) positions.set_number(i, static_cast<double>(before + i));
  lengths.set_number(0, static_cast<double>(before + count));
  const HostTensor result =
      session_.run("score", {{"ids", ids}, {"positions", positions}, {"lengths", lengths}, {"targets", targets}})
          .get("output");
  log_probabilities.insert(log_probabilities.end(), result.f32().begin(), result.f32().end());
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
}

Perplexity LanguageModel::perplexity(std::span<const std::int32_t> tokens,
                                     const std::function<void(std::int64_t scored)>& on_progress) {
  if (tokens.size() < 2) throw UsageError("perplexity needs a text of at least two tokens");
  if (context_ < 2) throw UsageError("perplexity needs a context of at least two tokens");
  check_tokens(tokens);
  if (!session_.has_entry("score"))
    session_.add_entry(
        "score", score_graph(config_, Dim::symbol("T", chunk_), {.capacity = context_, .chunk = chunk_}, weights_));
  Perplexity result;
  const double start = now();
  double sum = 0;
  // A special token at the beginning, which models rely on, begins every window.
  const bool has_mark = tokenizer_.is_special(tokens[0]);
  const auto window = static_cast<std::size_t>(context_), stride = std::max<std::size_t>(1, window / 2);
  std::size_t scored = 0;  // tokens up to this index have been predicted
  for (std::size_t begin = 0; scored + 1 < tokens.size(); begin += stride) {
    std::vector<std::int32_t> seen;
    if (has_mark && begin > 0) seen.push_back(tokens[0]);
    const std::size_t length = std::min(window - seen.size(), tokens.size() - begin);
    seen.insert(seen.end(), tokens.begin() + begin, tokens.begin() + begin + length);
    // The token after the window is predicted too, where there is one.
    const bool ends = begin + length == tokens.size();
    if (!ends) seen.push_back(tokens[begin + length]);
    std::vector<float> found;
    cached_.clear();
    for (std::size_t at = 0; at + 1 < seen.size(); at += static_cast<std::size_t>(chunk_)) {
      const std::size_t count = std::min(seen.size() - 1 - at, static_cast<std::size_t>(chunk_));
      score(std::span(seen).subspan(at, count), std::span(seen).subspan(at + 1, count), found);
    }
    const std::size_t last = begin + length - (ends ? 1 : 0);
    const std::size_t fresh = std::min(found.size(), last - scored);
    for (const float value : std::span(found).last(fresh)) sum -= static_cast<double>(value);
    result.tokens += static_cast<std::int64_t>(fresh);
    scored = last;
    if (on_progress) on_progress(result.tokens);
  }
  result.seconds = now() - start;
  result.value = std::exp(sum / static_cast<double>(result.tokens));
  return result;
}

Generation LanguageModel::continue_tokens(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                          const OnText& on_text) {
  Sampler sampler(options.sampling.value_or(sampling_));
  sampler.observe(prompt);
  if (options.grammar) sampler.constrain(make_constraint(options.grammar, vocabulary()));
  StopMatcher stop(options.stop, end_tokens_);
  // Fed the prompt first, so that the continuation is not decoded as the beginning of a text, which would drop its
  // leading space.
  StreamDecoder stream(tokenizer_);
  for (const std::int32_t token : prompt) stream.push(token);
  Generation result;
  const auto say = [&](const std::string& text) {
    result.text += text;
    if (on_text && !text.empty()) on_text(text);
  };
  std::vector<std::int32_t> tokens(prompt.begin(), prompt.end());
  result.prompt_tokens = std::ssize(prompt);
  result.reused = std::mismatch(tokens.begin(), tokens.end(), cached_.begin(), cached_.end()).first - tokens.begin();
  const double start = now();
  double first = 0;
  result.reason = StopReason::length;
  while (std::ssize(result.tokens) < options.max_tokens) {
    if (std::ssize(tokens) > context_ && !result.tokens.empty()) {
      result.reason = StopReason::context;
      break;
    }
    std::vector<float> logits = next_logits(tokens);
    if (first == 0) first = now();
    const int token = sampler.sample(logits, options.max_tokens - static_cast<int>(result.tokens.size()));
    if (stop.is_stop_token(token)) {
      result.reason = StopReason::end;
      break;
    }
    tokens.push_back(token);
    result.tokens.push_back(token);
    say(stop.feed(stream.push(token)));
    if (stop.stopped()) {
      result.reason = StopReason::stop;
      break;
    }
    // If nothing may follow, there is no need to sample an end token.
    if (options.grammar && is_whole(*sampler.constraint(), *vocabulary_)) {
      result.reason = StopReason::end;
      break;
    }
  }
  if (!stop.stopped()) {
    say(stop.feed(stream.finish()));
    say(stop.finish());
  }
  result.prompt_seconds = first - start;
  result.token_seconds = now() - first;
  return result;
}

Generation LanguageModel::generate(std::string_view prompt, const GenerateOptions& options, const OnText& on_text) {
  const Encoding encoding = tokenizer_.encode(prompt);
  if (encoding.ids.empty())
    throw UsageError("the prompt is empty, and the tokenizer has no beginning-of-text token; provide some text");
  return continue_tokens(encoding.ids, options, on_text);
}

Generation LanguageModel::chat(std::string_view message, const GenerateOptions& options, const OnText& on_text) {
  return answer(std::vector<ChatMessage>{{"user", std::string(message)}}, options, on_text);
}

Generation LanguageModel::answer(const std::vector<ChatMessage>& messages, const GenerateOptions& options,
                                 const OnText& on_text, const ChatTemplateOptions& rendering) {
  return answer(to_json(messages), options, on_text, rendering);
}

Generation LanguageModel::answer(const JsonValue& messages, const GenerateOptions& options, const OnText& on_text,
                                 const ChatTemplateOptions& rendering) {
  if (!template_)
    throw UsageError(
        "the model's folder has no chat template, so it does not support chat; use generate to continue a text, or add "
        "a chat_template.jinja");
  // The template writes the special tokens itself.
  const Encoding encoding = tokenizer_.encode(template_->render(messages, rendering), {.add_special = false});
  return continue_tokens(encoding.ids, options, on_text);
}

}  // namespace jerboa
