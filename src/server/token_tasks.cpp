#include "server/token_tasks.h"

#include <jerboa/language/model.h>

#include "base/json_value.h"
#include "server/request.h"

namespace jerboa::server {
namespace {

class CallTask final : public Task {
 public:
  CallTask(std::function<Json(LoadedModel& model)> call, std::shared_ptr<Exchange> exchange,
           const RequestLimits& limits)
      : Task(limits.seconds), call_(std::move(call)), exchange_(std::move(exchange)) {}
  void start(LoadedModel& model) override { exchange_->respond({.body = dump(call_(model))}); }
  bool pump() override { return true; }
  void fail(const ApiError& error) override { exchange_->respond(error.response()); }
  bool is_abandoned() const override { return exchange_->is_closed(); }

 private:
  std::function<Json(LoadedModel& model)> call_;
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace

std::unique_ptr<Task> make_call_task(std::function<Json(LoadedModel& model)> call, std::shared_ptr<Exchange> exchange,
                                     const RequestLimits& limits) {
  return std::make_unique<CallTask>(std::move(call), std::move(exchange), limits);
}

Json tokenize(LoadedModel& model, const Json& body) {
  const Fields fields(body);
  std::string text;
  bool adds_special = fields.boolean("add_special_tokens").value_or(fields.boolean("add_special").value_or(true));
  if (fields.find("messages") != nullptr) {
    const auto& chat_template = model.language().model().chat_template();
    if (!chat_template) throw ApiError(400, model.name() + " has no chat template", "messages");
    text = chat_template->render(make_json(parse_chat_request(body, {}).messages));
    adds_special = false;
  } else {
    text = fields.find("content") != nullptr ? fields.required_text("content") : fields.required_text("prompt");
  }
  const Tokenizer& tokenizer = model.generates() ? model.language().tokenizer() : model.encoder().tokenizer();
  const std::vector<std::int32_t> tokens = tokenizer.encode(text, {.add_special = adds_special}).ids;
  return {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.context()}};
}

Json detokenize(LoadedModel& model, const Json& body) {
  const Fields fields(body);
  const Json& given = fields.require("tokens");
  std::vector<std::int32_t> tokens;
  if (!given.is_array()) fields.fail("tokens", "must be a list of token ids");
  for (const Json& token : given) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 || token.get<std::int64_t>() > INT32_MAX)
      fields.fail("tokens", "must be a list of token ids");
    tokens.push_back(token.get<std::int32_t>());
  }
  const Tokenizer& tokenizer = model.generates() ? model.language().tokenizer() : model.encoder().tokenizer();
  const std::string text = tokenizer.decode(tokens, {.skip_special = false});
  return {{"content", text}, {"prompt", text}};
}

}  // namespace jerboa::server
