#include "server/reply.h"

#include <ctime>
#include <fmt/format.h>
#include <random>

namespace jerboa::server {

void Reply::begin(const std::string& model) {
  model_ = model;
  created_ = static_cast<std::int64_t>(std::time(nullptr));
  has_begun_ = true;
  if (!streams_) return;
  exchange_->start({.type = "text/event-stream; charset=utf-8", .headers = {{"Cache-Control", "no-store"}}});
  begin_stream();
}

void Reply::send_event(const Json& data) { exchange_->write("data: " + dump(data) + "\n\n"); }

void Reply::fail(const ApiError& error) {
  if (!streams_ || !has_begun_) return exchange_->respond(error.response());
  exchange_->write("data: " + error.body() + "\n\n");
  exchange_->finish();
}

void Reply::note(const Usage& usage) {
  exchange_->note(fmt::format("{} + {} tokens", usage.prompt_tokens, usage.completion_tokens));
}

const char* finish_reason(StopReason reason, bool has_calls) {
  if (reason != StopReason::end && reason != StopReason::stop) return "length";
  return has_calls ? "tool_calls" : "stop";
}

std::string make_id(const std::string& prefix) {
  static thread_local std::mt19937_64 random{(std::uint64_t{std::random_device{}()} << 32) |
                                             std::uint64_t{std::random_device{}()}};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), random() >> 32);
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

}  // namespace jerboa::server
