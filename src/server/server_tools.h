#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/fields.h"

namespace jerboa::server {

struct ToolOutput {
  std::string text;
  bool is_error = false;
};

/// A tool that the server calls itself, for requests that ask for that.
struct ServerTool {
  std::string name, description;
  Json parameters = {};  ///< a JSON schema
  /// Any thread may call it; it throws if the call fails, and should end soon once it is cancelled.
  std::function<ToolOutput(const Json& arguments, const std::function<bool()>& is_cancelled)> call = {};
};

struct ServerTools {
  std::vector<ServerTool> tools = {};
  int rounds = 8;  ///< of calls in an answer; after them the model must answer without
};

/// A call as a model wrote it.
struct WrittenCall {
  std::string name;
  std::string arguments;  ///< JSON, if the model made no mistake
};

/// A call, and what came of it.
struct ServerCall : WrittenCall {
  ToolOutput output = {};
};

/// Performs a call. What goes wrong with it is its output, so that the model can do better.
ToolOutput perform(const std::vector<ServerTool>& tools, const WrittenCall& call,
                   const std::function<bool()>& is_cancelled);

/// What a model said and called, as a message in OpenAI's form; `ids` are those of the calls.
Json assistant_message(const std::string& text, const std::vector<WrittenCall>& calls,
                       const std::vector<std::string>& ids);
/// What a call returned, as a message in OpenAI's form.
Json tool_message(const std::string& id, const WrittenCall& call, const ToolOutput& output);

/// Calls that are performed on a thread of their own, one after another.
class RunningCalls {
 public:
  /// They are cancelled after so many seconds. The tools must outlive it.
  RunningCalls(const ServerTools& tools, std::vector<WrittenCall> calls, double seconds);
  /// Cancels them, and waits for their end, which may take a while.
  ~RunningCalls();
  RunningCalls(const RunningCalls&) = delete;
  RunningCalls& operator=(const RunningCalls&) = delete;

  void cancel() { is_cancelled_ = true; }
  bool are_done() const;
  /// With their outputs.
  std::vector<ServerCall> take() { return calls_.get(); }

 private:
  std::atomic<bool> is_cancelled_ = false;
  std::future<std::vector<ServerCall>> calls_;
};

/// The tools as requests describe them: of chats, or of responses.
Json tools_json(const std::vector<ServerTool>& tools, bool of_chat = true);

}  // namespace jerboa::server
