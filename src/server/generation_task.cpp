#include "server/generation_task.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/language/runner.h>

#include "base/json_value.h"
#include "server/chat_prompt.h"
#include "server/marked_text.h"
#include "server/output_parser.h"
#include "server/result_room.h"

namespace jerboa::server {
namespace {

// One of the answer's choices.
struct Choice {
  int index = 0;
  language::Stream stream = {};
  std::vector<std::int32_t> prompt = {};
  GenerateOptions options = {};
  bool is_first_of_prompt = true;
  bool chooses_tool = false;  // the model is writing the name of the tool to call
  std::unique_ptr<OutputParser> parser = {};
  std::unique_ptr<MarkedText> marked_text = {};
  bool has_ended = false;
};

// The prompt of one generation.
struct Beginning {
  std::vector<std::int32_t> tokens;
  std::string opening = {};  // the end of the prompt if it belongs to the answer
  bool is_in_thoughts = false;
  bool shows_marks = false;
  bool chooses_tool = false;
};

class GenerationTask : public Task {
 public:
  GenerationTask(std::unique_ptr<Reply> reply, const RequestLimits& limits)
      : Task(limits.seconds), reply_(std::move(reply)), limits_(limits) {}

  bool pump() final {
    if (!resume()) return false;
    bool has_all_ended = true;
    for (Choice& choice : choices_) {
      if (!choice.has_ended) pump(choice);
      has_all_ended = has_all_ended && choice.has_ended;
    }
    if (has_all_ended) {
      reply_->note(usage_);
      reply_->finish(usage_);
    }
    return has_all_ended;
  }
  void fail(const ApiError& error) final {
    choices_.clear();
    reply_->fail(error);
  }
  bool is_abandoned() const final { return reply_->is_abandoned(); }

 protected:
  /// Whether there is output to pass on; false while the task waits.
  virtual bool resume() { return true; }
  /// May remove parts of the answer before the client sees them.
  virtual void filter(OutputEvents&) {}
  /// Called when a choice has ended. Returns true if it will continue, so that the answer is not complete.
  virtual bool goes_on_after(const Generation&) { return false; }
  virtual std::unique_ptr<OutputParser> make_parser(const Beginning&) const { return nullptr; }
  /// The rest of the call, after the model has written the tool's name.
  virtual ForcedCall after_choice(const std::string&) const { throw Error("there is nothing to choose"); }

  // Starts `count` sequences from one prompt: all but the first are forks, which share its cache.
  void generate(LoadedModel& model, const GenerationRequest& request, const Beginning& beginning,
                const GenerateOptions& shared) {
    std::size_t first = choices_.size();
    for (int i = 0; i < request.choices; ++i) {
      Choice choice{.index = static_cast<int>(choices_.size()),
                    .prompt = beginning.tokens,
                    .options = shared,
                    .is_first_of_prompt = i == 0,
                    .chooses_tool = beginning.chooses_tool};
      GenerateOptions& options = choice.options;
      options.sampling->seed += static_cast<std::uint64_t>(i);
      options.logprobs = request.logprobs;
      choice.stream = i == 0 ? model.language().submit(beginning.tokens, options)
                             : model.language().runner().fork(choices_[first].stream, options);
      choice.parser = make_parser(beginning);
      if (beginning.shows_marks)
        choice.marked_text = std::make_unique<MarkedText>(model.language().tokenizer(), beginning.tokens, request.stop);
      choices_.push_back(std::move(choice));
    }
    usage_.prompt_tokens += std::ssize(beginning.tokens);
  }

  // For the answer as a whole, which may consist of several generations with tool calls in between.
  std::int64_t tokens_left(LoadedModel& model, const GenerationRequest& request) const {
    const int context = model.language().context();
    const int most = limits_.max_tokens > 0 ? limits_.max_tokens : context;
    return std::min(request.max_tokens.value_or(most), context) - usage_.completion_tokens;
  }

  GenerateOptions options_for(LoadedModel& model, const GenerationRequest& request) const {
    GenerateOptions options;
    options.max_tokens = static_cast<int>(tokens_left(model, request));
    options.sampling = request.sampling(model.language().recommended_sampling());
    const auto tokens = model.language().model().vocabulary_size();
    for (const auto& [token, bias] : options.sampling->logit_bias)
      if (token >= tokens) throw ApiError(400, fmt::format("logit_bias: there is no token {}", token), "logit_bias");
    options.stop = request.stop;
    options.drafts = model.drafts();
    options.seconds = seconds_left();
    if (*options.seconds <= 0) throw late(limits_.seconds);
    if (request.schema) options.grammar = compile_json_schema(make_json(*request.schema));
    return options;
  }

  void begin_reply(LoadedModel& model, const std::vector<std::string>& openings) {
    model_ = &model;
    reply_->begin(model.name());
    add_openings(openings);
  }

  // Adds the ends of the prompts that belong to the answers.
  void add_openings(const std::vector<std::string>& openings) {
    for (std::size_t i = 0; i < choices_.size(); ++i)
      pass_on(choices_[i], parsed(choices_[i], openings[i * openings.size() / choices_.size()]), {});
  }

 private:
  void pump(Choice& choice) {
    // Checked first: pieces that arrive in between would be lost otherwise.
    const bool has_ended = choice.stream.ended();
    OutputEvents events;
    std::vector<TokenLogprob> logprobs;
    while (const auto piece = choice.stream.take()) {
      append(events, parsed(choice, text_of(choice, *piece)));
      if (piece->token && choice.parser && choice.parser->is_in_thoughts()) ++usage_.reasoning_tokens;
      if (piece->token && piece->logprobs) logprobs.push_back(logprob_of(*piece->token, *piece->logprobs));
    }
    const bool goes_on = has_ended && choice.chooses_tool && choice.stream.result().reason == StopReason::end;
    if (goes_on) append(events, parsed(choice, call_chosen(choice)));
    if (has_ended && !goes_on) append(events, finished(choice));
    pass_on(choice, std::move(events), logprobs);
    if (has_ended && !goes_on) end(choice);
  }

  void pass_on(const Choice& choice, OutputEvents events, const std::vector<TokenLogprob>& logprobs) {
    filter(events);
    if (!events.empty() || !logprobs.empty()) reply_->add(choice.index, events, logprobs);
  }

  static std::string text_of(Choice& choice, const TextPiece& piece) {
    if (!choice.marked_text) return piece.text;
    return piece.token ? choice.marked_text->push(*piece.token) : std::string();
  }

  static OutputEvents finished(Choice& choice) {
    OutputEvents events;
    if (choice.marked_text) append(events, parsed(choice, choice.marked_text->finish()));
    if (choice.parser) append(events, choice.parser->finish());
    return events;
  }

  // Adds the call's head after the tool's name, and starts generating the arguments. Returns the added text.
  std::string call_chosen(Choice& choice) {
    const Generation chosen = choice.stream.result();
    const ForcedCall next = after_choice(chosen.text);
    count(choice, chosen);
    const std::vector<std::int32_t> head =
        go_on_after(chosen, next, model_->language().tokenizer(), choice.prompt, choice.options);
    std::string text = choice.marked_text ? "" : next.opening;
    if (choice.marked_text)
      for (const std::int32_t token : head) text += choice.marked_text->push(token);
    choice.options.seconds = std::max(seconds_left(), 1e-6);
    choice.chooses_tool = choice.is_first_of_prompt = false;
    choice.stream = model_->language().submit(choice.prompt, choice.options);
    return text;
  }

  static OutputEvents parsed(Choice& choice, const std::string& text) {
    if (text.empty()) return {};
    return choice.parser ? choice.parser->feed(text) : OutputEvents{{OutputEvent::Kind::content, text}};
  }

  void end(Choice& choice) {
    const Generation result = choice.stream.result();
    if (result.reason == StopReason::failed) throw Error(result.error);
    if (result.reason == StopReason::deadline && result.tokens.empty()) throw late(limits_.seconds);
    count(choice, result);
    if (goes_on_after(result)) return;
    choice.has_ended = true;
    reply_->end(choice.index, result.reason);
  }

  // All but the first sequence of a prompt are forks, whose shared prefix does not count as reused.
  void count(const Choice& choice, const Generation& result) {
    usage_.completion_tokens += std::ssize(result.tokens);
    if (choice.is_first_of_prompt) usage_.cached_tokens += result.reused;
  }

  std::string token_text(std::int32_t token) const {
    const std::string& bytes = model_->language().vocabulary()->bytes(token);
    return bytes.empty() ? model_->language().tokenizer().id_to_token(token).value_or("") : bytes;
  }

  TokenLogprob logprob_of(std::int32_t token, const TokenLogprobs& found) const {
    TokenLogprob out{token_text(token), found.drawn, {}};
    for (const auto& [other, logprob] : found.likeliest) out.alternatives.emplace_back(token_text(other), logprob);
    return out;
  }

 protected:
  Usage usage_;
  std::unique_ptr<Reply> reply_;
  RequestLimits limits_;
  LoadedModel* model_ = nullptr;
  std::vector<Choice> choices_;
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

class ChatTask : public GenerationTask {
 public:
  ChatTask(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits)
      : GenerationTask(std::move(reply), limits), request_(std::move(request)) {}

  void start(LoadedModel& model) override {
    begin_text(model);
    begin_reply(model, {opening_});
  }

 protected:
  void begin_text(LoadedModel& model) {
    if (!model.language().has_chat_template())
      throw ApiError(
          400, fmt::format("{} has no chat template, so it does not support chat; use /v1/completions", model.name()),
          "model");
    format_ = model.chat_format();
    const ChatPrompt prompt = prompt_of(model, request_);
    GenerateOptions options = options_for(model, request_);
    if (prompt.grammar) options.grammar = prompt.grammar;
    const Beginning beginning{.tokens = model.encode(prompt.text, false),
                              .opening = prompt.opening,
                              .is_in_thoughts = prompt.is_in_thoughts,
                              .shows_marks = prompt.shows_marks,
                              .chooses_tool = prompt.chooses_tool};
    generate(model, request_, beginning, options);
    opening_ = prompt.opening;
  }

  ChatPrompt prompt_of(LoadedModel& model, const ChatRequest& request) const {
    return make_chat_prompt(*model.language().model().chat_template(), format_, request);
  }

  ChatRequest request_;
  std::string opening_;

 private:
  std::unique_ptr<OutputParser> make_parser(const Beginning& beginning) const override {
    return make_output_parser(
        *format_.tools,
        {.has_tools = !request_.tools.empty(), .is_in_thoughts = beginning.is_in_thoughts, .tools = request_.tools});
  }

  ForcedCall after_choice(const std::string& chosen) const override { return choose_tool(format_, request_, chosen); }

  ChatFormat format_;
};

// Performs the model's calls and feeds it their results, until it answers without a call.
class AgentTask final : public ChatTask {
 public:
  AgentTask(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits, const ServerTools& tools)
      : ChatTask(std::move(request), std::move(reply), limits), tools_(tools) {}

  void start(LoadedModel& model) override {
    request_.choices = 1;
    ChatTask::start(model);
  }
  bool is_waiting() const override { return running_ != nullptr; }
  std::unique_ptr<RunningCalls> take_calls() override { return std::move(running_); }

 private:
  void filter(OutputEvents& events) override {
    OutputEvents shown;
    for (OutputEvent& event : events) {
      if (event.kind == OutputEvent::Kind::call) {
        calls_.push_back({event.text, ""});
      } else if (event.kind == OutputEvent::Kind::arguments) {
        if (!calls_.empty()) calls_.back().arguments += event.text;
      } else {
        if (event.kind == OutputEvent::Kind::content) said_ += event.text;
        shown.push_back(std::move(event));
      }
    }
    events = std::move(shown);
  }

  bool goes_on_after(const Generation& result) override {
    const bool is_complete = result.reason == StopReason::end || result.reason == StopReason::stop;
    const bool may_call = !request_.tools.empty();
    if (calls_.empty() || !may_call || !is_complete) return false;
    running_ = std::make_unique<RunningCalls>(tools_, std::exchange(calls_, {}), seconds_left());
    return true;
  }

  bool resume() override {
    if (!running_) return true;
    if (seconds_left() <= 0) throw late(limits_.seconds);
    if (!running_->are_done()) return false;
    add_round(running_->take());
    running_.reset();
    if (tokens_left(*model_, request_) <= 0) {
      choices_[0].has_ended = true;
      reply_->end(0, StopReason::length);
      return true;
    }
    choices_.clear();
    begin_text(*model_);
    add_openings({opening_});
    return true;
  }

  void add_round(const std::vector<ServerCall>& calls) {
    const std::vector<WrittenCall> written(calls.begin(), calls.end());
    std::vector<std::string> ids;
    Json results = Json::array();
    for (const ServerCall& call : calls) {
      reply_->add_server_call(call);
      ids.push_back(make_id("call_"));
      results.push_back(tool_message(ids.back(), call, call.output));
    }
    request_.messages.push_back(assistant_message(std::exchange(said_, {}), written, ids));
    request_.tool_choice = ToolChoice::automatic;
    request_.tools = all_tools();
    const bool has_room = add_results(request_.messages, std::move(results), room());
    if (has_room && ++rounds_ < tools_.rounds) return;
    request_.tool_choice = ToolChoice::none;  // still describes the tools, so that the cache is reused
    request_.tools.clear();
  }

  std::vector<Tool> all_tools() const {
    std::vector<Tool> out;
    for (const ServerTool& tool : tools_.tools) out.push_back({tool.name, tool.parameters});
    return out;
  }

  ResultRoom room() const {
    const LanguageModel& model = model_->language();
    const auto count = [this, &model](const Json& messages) {
      ChatRequest request = request_;
      request.messages = messages;
      return std::ssize(model.tokenizer().encode(prompt_of(*model_, request).text, {.add_special = false}).ids);
    };
    return {model.tokenizer(), model.context(), std::max<std::int64_t>(tokens_left(*model_, request_), 0), count};
  }

  const ServerTools& tools_;
  int rounds_ = 0;
  std::vector<WrittenCall> calls_;
  std::string said_;
  std::unique_ptr<RunningCalls> running_;
};

}  // namespace

std::unique_ptr<Task> make_chat_task(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits,
                                     const ServerTools* tools) {
  if (tools != nullptr) return std::make_unique<AgentTask>(std::move(request), std::move(reply), limits, *tools);
  return std::make_unique<ChatTask>(std::move(request), std::move(reply), limits);
}

std::unique_ptr<Task> make_completion_task(CompletionRequest request, std::unique_ptr<Reply> reply,
                                           const RequestLimits& limits) {
  return std::make_unique<CompletionTask>(std::move(request), std::move(reply), limits);
}

}  // namespace jerboa::server
