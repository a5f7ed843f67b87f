#include "server/generation_task.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/language/runner.h>

#include "base/json_value.h"
#include "server/chat_prompt.h"
#include "server/logprobs.h"
#include "server/marked_text.h"
#include "server/output_parser.h"

namespace jerboa::server {
namespace {

// One text of an answer.
struct Choice {
  int index = 0;
  language::Stream stream = {};
  std::shared_ptr<LogprobRecorder> recorder = {};
  std::unique_ptr<OutputParser> parser = {};
  std::unique_ptr<MarkedText> marked_text = {};
  bool has_ended = false;
};

// What a text is generated from.
struct Beginning {
  std::vector<std::int32_t> tokens;
  std::string opening = {};  // the part of the prompt that is also the beginning of the answer
  bool is_in_thoughts = false;
  bool shows_marks = false;
};

class GenerationTask : public Task {
 public:
  GenerationTask(std::unique_ptr<Reply> reply, const RequestLimits& limits)
      : reply_(std::move(reply)), limits_(limits) {}

  bool pump() final {
    bool has_all_ended = true;
    for (Choice& choice : choices_) {
      if (!choice.has_ended) pump(choice);
      has_all_ended = has_all_ended && choice.has_ended;
    }
    if (has_all_ended) reply_->finish(usage_);
    return has_all_ended;
  }
  void fail(const ApiError& error) final {
    choices_.clear();
    reply_->fail(error);
  }
  bool is_abandoned() const final { return reply_->is_abandoned(); }

 protected:
  virtual std::unique_ptr<OutputParser> make_parser(const Beginning&) const { return nullptr; }

  // Begins `count` texts from one prompt: the others are forks of the first, which share its cache.
  void generate(LoadedModel& model, const GenerationRequest& request, const Beginning& beginning,
                const GenerateOptions& shared) {
    std::size_t first = choices_.size();
    for (int i = 0; i < request.choices; ++i) {
      Choice choice{.index = static_cast<int>(choices_.size())};
      GenerateOptions options = shared;
      options.sampling->seed += static_cast<std::uint64_t>(i);
      if (request.logprobs) {
        choice.recorder = std::make_shared<LogprobRecorder>(*request.logprobs);
        options.sampler = [recorder = choice.recorder, sampling = *options.sampling] {
          return recorder->make_sampler(sampling);
        };
      }
      choice.stream = i == 0 ? model.language().submit(beginning.tokens, options)
                             : model.language().runner().fork(choices_[first].stream, options);
      choice.parser = make_parser(beginning);
      if (beginning.shows_marks)
        choice.marked_text = std::make_unique<MarkedText>(model.language().tokenizer(), beginning.tokens, request.stop);
      choices_.push_back(std::move(choice));
    }
    usage_.prompt_tokens += std::ssize(beginning.tokens);
  }

  GenerateOptions options_for(LoadedModel& model, const GenerationRequest& request) const {
    GenerateOptions options;
    const int most = limits_.max_tokens > 0 ? limits_.max_tokens : model.language().context();
    options.max_tokens = std::min(request.max_tokens.value_or(most), model.language().context());
    options.sampling = request.sampling(model.language().recommended_sampling());
    const auto tokens = model.language().model().vocabulary_size();
    for (const auto& [token, bias] : options.sampling->logit_bias)
      if (token >= tokens) throw ApiError(400, fmt::format("logit_bias: there is no token {}", token), "logit_bias");
    options.stop = request.stop;
    options.seconds = limits_.seconds;
    if (request.schema) options.grammar = compile_json_schema(make_json(*request.schema));
    return options;
  }

  void begin_reply(LoadedModel& model, const std::vector<std::string>& openings) {
    model_ = &model;
    reply_->begin(model.name());
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const std::string& opening = openings[i * openings.size() / choices_.size()];
      if (!opening.empty()) reply_->add(choices_[i].index, parsed(choices_[i], opening), {});
    }
  }

 private:
  void pump(Choice& choice) {
    // Whether it has ended is asked first: pieces that come in between would be lost otherwise.
    const bool has_ended = choice.stream.ended();
    std::string text;
    std::vector<TokenLogprob> logprobs;
    while (const auto piece = choice.stream.take()) {
      if (!choice.marked_text)
        text += piece->text;
      else if (piece->token)
        text += choice.marked_text->push(*piece->token);
      if (choice.recorder && piece->token) logprobs.push_back(logprob_of(choice, *piece->token));
    }
    if (has_ended && choice.marked_text) text += choice.marked_text->finish();
    OutputEvents events = parsed(choice, text);
    if (has_ended && choice.parser)
      for (OutputEvent& event : choice.parser->finish()) events.push_back(std::move(event));
    if (!events.empty() || !logprobs.empty()) reply_->add(choice.index, events, logprobs);
    if (has_ended) end(choice);
  }

  static OutputEvents parsed(Choice& choice, const std::string& text) {
    if (text.empty()) return {};
    return choice.parser ? choice.parser->feed(text) : OutputEvents{{OutputEvent::Kind::content, text}};
  }

  void end(Choice& choice) {
    choice.has_ended = true;
    const Generation result = choice.stream.result();
    if (result.reason == StopReason::failed) throw Error(result.error);
    if (result.reason == StopReason::deadline && result.tokens.empty())
      throw ApiError(504, fmt::format("no token was computed within {} seconds", limits_.seconds), "", "timeout");
    usage_.completion_tokens += std::ssize(result.tokens);
    usage_.cached_tokens += choice.index == 0 ? result.reused : 0;
    reply_->end(choice.index, result.reason);
  }

  std::string token_text(std::int32_t token) const {
    const std::string& bytes = model_->language().vocabulary()->bytes(token);
    return bytes.empty() ? model_->language().tokenizer().id_to_token(token).value_or("") : bytes;
  }

  TokenLogprob logprob_of(Choice& choice, std::int32_t token) const {
    const auto found = choice.recorder->take();
    if (!found) throw Error(fmt::format("no distribution was recorded for token {}", token));
    TokenLogprob out{token_text(token), found->logprob(token), {}};
    for (const auto& [other, logprob] : found->likeliest) out.alternatives.emplace_back(token_text(other), logprob);
    return out;
  }

  std::unique_ptr<Reply> reply_;
  RequestLimits limits_;
  LoadedModel* model_ = nullptr;
  std::vector<Choice> choices_;
  Usage usage_;
};

class CompletionTask final : public GenerationTask {
 public:
  CompletionTask(CompletionRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits)
      : GenerationTask(std::move(reply), limits), request_(std::move(request)) {}

  void start(LoadedModel& model) override {
    const GenerateOptions options = options_for(model, request_);
    std::vector<Beginning> beginnings;
    std::vector<std::string> echoes;
    for (const Prompt& prompt : request_.prompts) {
      Beginning beginning;
      if (const auto* text = std::get_if<std::string>(&prompt)) {
        beginning.tokens = model.encode(*text, true);
      } else {
        beginning.tokens = std::get<std::vector<std::int32_t>>(prompt);
        if (beginning.tokens.empty()) throw ApiError(400, "the prompt is empty", "prompt");
        model.check_length(beginning.tokens.size());
      }
      echoes.push_back(!request_.echo ? "" : model.language().tokenizer().decode(beginning.tokens));
      beginnings.push_back(std::move(beginning));
    }
    for (const Beginning& beginning : beginnings) generate(model, request_, beginning, options);
    begin_reply(model, echoes);
  }

 private:
  CompletionRequest request_;
};

class ChatTask final : public GenerationTask {
 public:
  ChatTask(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits)
      : GenerationTask(std::move(reply), limits), request_(std::move(request)) {}

  void start(LoadedModel& model) override {
    const auto& chat_template = model.language().model().chat_template();
    if (!chat_template)
      throw ApiError(
          400, fmt::format("{} has no chat template, so it does not support chat; use /v1/completions", model.name()),
          "model");
    format_ = model.chat_format().tools;
    const ChatPrompt prompt = make_chat_prompt(*chat_template, model.chat_format(), request_);
    GenerateOptions options = options_for(model, request_);
    if (prompt.grammar) options.grammar = prompt.grammar;
    const Beginning beginning{.tokens = model.encode(prompt.text, false),
                              .opening = prompt.opening,
                              .is_in_thoughts = prompt.is_in_thoughts,
                              .shows_marks = prompt.shows_marks};
    generate(model, request_, beginning, options);
    begin_reply(model, {beginning.opening});
  }

 private:
  std::unique_ptr<OutputParser> make_parser(const Beginning& beginning) const override {
    return make_output_parser(*format_,
                              {.has_tools = !request_.tools.empty(), .is_in_thoughts = beginning.is_in_thoughts});
  }

  ChatRequest request_;
  const ToolFormat* format_ = nullptr;
};

}  // namespace

std::unique_ptr<Task> make_chat_task(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits) {
  return std::make_unique<ChatTask>(std::move(request), std::move(reply), limits);
}

std::unique_ptr<Task> make_completion_task(CompletionRequest request, std::unique_ptr<Reply> reply,
                                           const RequestLimits& limits) {
  return std::make_unique<CompletionTask>(std::move(request), std::move(reply), limits);
}

}  // namespace jerboa::server
