#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/language/generation.h>

#include "server/api_error.h"
#include "server/call_reader.h"
#include "server/request.h"
#include "server/server_tools.h"

// Answers in OpenAI's formats, whole or as server-sent events.
namespace jerboa::server {

struct TokenLogprob {
  std::string token;  ///< its bytes, which need not be whole characters
  float logprob = 0;
  std::vector<std::pair<std::string, float>> alternatives = {};
};

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
};

/// Receives the output of a request's choices, and writes the answer to an exchange.
class Reply {
 public:
  Reply(std::shared_ptr<Exchange> exchange, bool streams) : exchange_(std::move(exchange)), streams_(streams) {}
  virtual ~Reply() = default;

  /// Called when a model has accepted the request.
  void begin(const std::string& model);
  /// Adds output of one of the choices.
  virtual void add(int choice, const OutputEvents& events, const std::vector<TokenLogprob>& logprobs) = 0;
  /// Reports a call of one of the server's tools.
  virtual void add_server_call(const ServerCall& call) { (void)call; }
  virtual void end(int choice, StopReason reason) = 0;
  virtual void finish(const Usage& usage) = 0;
  /// Called instead of finish(), at any time.
  virtual void fail(const ApiError& error);
  /// Adds the token counts to the log line.
  void note(const Usage& usage);
  bool is_abandoned() const { return exchange_->is_closed(); }

 protected:
  virtual void begin_stream() {}
  void send_event(const Json& data);
  bool streams() const { return streams_; }
  Exchange& exchange() { return *exchange_; }
  const std::string& model() const { return model_; }
  std::int64_t created() const { return created_; }

 private:
  std::shared_ptr<Exchange> exchange_;
  bool streams_, has_begun_ = false;
  std::string model_;
  std::int64_t created_ = 0;
};

std::unique_ptr<Reply> make_chat_reply(std::shared_ptr<Exchange> exchange, const ChatRequest& request);
std::unique_ptr<Reply> make_completion_reply(std::shared_ptr<Exchange> exchange, const CompletionRequest& request);
std::unique_ptr<Reply> make_responses_reply(std::shared_ptr<Exchange> exchange, const ChatRequest& request);

/// "stop", "length" or "tool_calls".
const char* finish_reason(StopReason reason, bool has_calls);
/// A random identifier: "chatcmpl-5f0c…".
std::string make_id(const std::string& prefix);
/// {"prompt_tokens": …, …}
Json usage_json(const Usage& usage);

}  // namespace jerboa::server
