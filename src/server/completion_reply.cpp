#include <algorithm>

#include "server/reply.h"

namespace jerboa::server {
namespace {

// Counts a character at its first byte, since a token may hold only part of one.
std::size_t characters_in(const std::string& bytes) {
  return static_cast<std::size_t>(
      std::count_if(bytes.begin(), bytes.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

class CompletionReply final : public Reply {
 public:
  CompletionReply(std::shared_ptr<Exchange> exchange, const CompletionRequest& request)
      : Reply(std::move(exchange), request.stream),
        has_logprobs_(request.logprobs.has_value()),
        includes_usage_(request.include_usage),
        choices_(static_cast<std::size_t>(request.choices) * request.prompts.size()) {}

  void add(int index, const OutputEvents& events, const std::vector<TokenLogprob>& logprobs) override {
    std::string text;
    for (const OutputEvent& event : events) text += event.text;
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    if (streams()) {
      if (!text.empty() || !logprobs.empty()) send_chunk(index, text, {}, logprobs);
    } else {
      choice.text += text;
      choice.logprobs.insert(choice.logprobs.end(), logprobs.begin(), logprobs.end());
    }
  }

  void end(int index, StopReason reason) override {
    choices_[static_cast<std::size_t>(index)].finish_reason = finish_reason(reason, false);
    if (streams()) send_chunk(index, "", finish_reason(reason, false), {});
  }

  void finish(const Usage& usage) override {
    Json out = head();
    if (streams()) {
      if (includes_usage_) {
        out["choices"] = Json::array();
        out["usage"] = usage_json(usage);
        send_event(out);
      }
      exchange().write("data: [DONE]\n\n");
      return exchange().finish();
    }
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      out["choices"].push_back(
          choice_json(static_cast<int>(i), choice.text, choice.finish_reason, choice, choice.logprobs));
    }
    out["usage"] = usage_json(usage);
    exchange().respond({.body = dump(out)});
  }

 private:
  struct Choice {
    std::string text, finish_reason;
    std::vector<TokenLogprob> logprobs;
    std::size_t offset = 0;  // of the next token in the text, in characters
  };

  Json head() const { return {{"id", id_}, {"object", "text_completion"}, {"created", created()}, {"model", model()}}; }

  Json choice_json(int index, const std::string& text, const std::string& reason, Choice& choice,
                   const std::vector<TokenLogprob>& logprobs) const {
    return {{"index", index},
            {"text", text},
            {"logprobs", has_logprobs_ && !logprobs.empty() ? logprobs_json(choice, logprobs) : Json()},
            {"finish_reason", reason.empty() ? Json() : Json(reason)}};
  }

  static Json logprobs_json(Choice& choice, const std::vector<TokenLogprob>& logprobs) {
    Json tokens = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
    for (const TokenLogprob& one : logprobs) {
      tokens.push_back(one.token);
      values.push_back(one.logprob);
      Json alternatives = Json::object();
      for (const auto& [token, logprob] : one.alternatives) alternatives[token] = logprob;
      top.push_back(std::move(alternatives));
      offsets.push_back(choice.offset);
      choice.offset += characters_in(one.token);
    }
    return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", top}, {"text_offset", offsets}};
  }

  void send_chunk(int index, const std::string& text, const std::string& reason,
                  const std::vector<TokenLogprob>& logprobs) {
    Json chunk = head();
    chunk["choices"] =
        Json::array({choice_json(index, text, reason, choices_[static_cast<std::size_t>(index)], logprobs)});
    if (includes_usage_) chunk["usage"] = nullptr;
    send_event(chunk);
  }

  bool has_logprobs_, includes_usage_;
  std::vector<Choice> choices_;
  std::string id_ = make_id("cmpl-");
};

}  // namespace

std::unique_ptr<Reply> make_completion_reply(std::shared_ptr<Exchange> exchange, const CompletionRequest& request) {
  return std::make_unique<CompletionReply>(std::move(exchange), request);
}

}  // namespace jerboa::server
