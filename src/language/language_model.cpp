#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/generate/stop.h>
#include <jerboa/language/language_model.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "language/generation_config.h"
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

// The logits of the last of `time` tokens, which are appended to a sequence's cache.
Graph step_graph(const models::Config& config, const Dim& time, const models::CacheOptions& cache, DType weights) {
  const InputSpecs specs{
      {"ids", {1, time}, DType::i32}, {"positions", {1, time}, DType::i32}, {"lengths", {1}, DType::i32}};
  return forward_graph(specs, [&](const Inputs& in) {
    return models::family_of(config).logits(config, {.ids = in["ids"],
                                                     .positions = in["positions"],
                                                     .lengths = in["lengths"],
                                                     .cache = cache,
                                                     .only_last = true,
                                                     .weights = weights});
  });
}

// The type that most of a checkpoint's weights are in.
DType stored_weights(const SafeTensors& weights) {
  std::size_t f16 = 0, bf16 = 0, all = 0;
  for (const std::string& name : weights.names()) {
    const TensorEntry& entry = weights.entry(name);
    all += entry.elements();
    f16 += entry.type == StoredType::F16 ? entry.elements() : 0;
    bf16 += entry.type == StoredType::BF16 ? entry.elements() : 0;
  }
  return 2 * f16 > all ? DType::f16 : 2 * bf16 > all ? DType::bf16 : DType::f32;
}

DType checked(DType weights) {
  if (!is_float(weights) && weights != DType::i8 && weights != DType::i4)
    throw UsageError(fmt::format("weights can be f32, f16, bf16, int8 or int4, not {}", name(weights)));
  return weights;
}

// The chat template, if the folder has one.
std::optional<ChatTemplate> template_of(const std::filesystem::path& folder) {
  const auto config = folder / "tokenizer_config.json";
  const bool named = std::filesystem::exists(folder / "chat_template.jinja") ||
                     std::filesystem::exists(folder / "chat_template.json") ||
                     (std::filesystem::exists(config) && models::Config::open(config).has("chat_template"));
  if (!named) return std::nullopt;
  return ChatTemplate::load(folder);
}

Tokenizer tokenizer_of(const std::filesystem::path& folder) {
  Tokenizer tokenizer = Tokenizer::load(folder);
  // The file's truncation and padding are meant for batches of texts.
  tokenizer.set_truncation({});
  tokenizer.set_padding({});
  return tokenizer;
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

LanguageModel LanguageModel::load(const std::filesystem::path& folder, const LanguageModelOptions& options) {
  const models::Config config = models::Config::open(folder);
  const models::Family& family = models::family_of(config);
  if (options.chunk < 1) throw UsageError(fmt::format("chunk must be at least 1, not {}", options.chunk));
  const int context = context_of(config, options.context), chunk = std::min(options.chunk, context);
  const detail::GenerationConfig generation = detail::read_generation_config(folder, config);
  const SafeTensors weights = SafeTensors::open(folder);
  models::check_layers(weights, config, family);

  const models::CacheOptions cache{.capacity = context, .chunk = chunk};
  const DType type = options.weights ? checked(*options.weights) : stored_weights(weights);
  const Graph decode = step_graph(config, 1, cache, type);
  models::check_params(weights, decode, family);  // before allocating what config.json asks for
  Tokenizer tokenizer = tokenizer_of(folder);
  auto chat_template = template_of(folder);
  Session session = create_session({{"decode", decode}}, {.device = options.device});
  if (chunk > 1) session.add_entry("prefill", step_graph(config, Dim::symbol("T", chunk), cache, type));
  models::for_each_param(weights, decode, family,
                         [&](const models::ParamValues& values) { session.upload_param(values.name, values.bytes); });

  LanguageModel model(std::move(session), std::move(tokenizer));
  model.template_ = std::move(chat_template);
  model.end_tokens_ = generation.end_tokens;
  model.sampling_ = generation.sampling;
  model.vocabulary_size_ = decode.shape(decode.find("logits")).back().upper_bound();
  model.context_ = context;
  model.chunk_ = chunk;
  return model;
}

std::int64_t LanguageModel::parameters() const {
  std::set<std::string> known;  // a table may occur twice: for lookups, and quantised
  std::int64_t count = 0;
  for (const TensorInfo& tensor : session_.graph("decode").tensors) {
    if (tensor.storage != Storage::param || tensor.name.ends_with(models::scales_suffix)) continue;
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

std::vector<float> LanguageModel::next_logits(std::span<const std::int32_t> tokens) {
  if (tokens.empty()) throw UsageError("at least one token is needed to predict the next");
  if (std::ssize(tokens) > context_)
    throw UsageError(
        fmt::format("{} tokens exceed the context of {}; shorten the text, or load the model with a larger context",
                    tokens.size(), context_));
  // Cached tokens are not recomputed, except for the last one, whose logits are needed.
  const auto common = std::mismatch(tokens.begin(), tokens.end() - 1, cached_.begin(), cached_.end()).first;
  for (const std::int32_t token : tokens.subspan(static_cast<std::size_t>(common - tokens.begin())))
    if (token < 0 || vocabulary_size_ <= token)
      throw UsageError(fmt::format("there is no token {}; the model has {}{}", token, vocabulary_size_,
                                   tokenizer_.id_to_token(token) ? ", fewer than its tokenizer" : ""));
  cached_.resize(static_cast<std::size_t>(common - tokens.begin()));
  std::vector<float> logits;
  for (std::size_t at = cached_.size(); at < tokens.size(); at = cached_.size())
    run(tokens.subspan(at, std::min(tokens.size() - at, static_cast<std::size_t>(chunk_))), logits);
  return logits;
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
