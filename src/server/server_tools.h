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

/// A tool that the server calls itself, for requests that ask for it.
struct ServerTool {
  std::string name, description;
  Json parameters = {};  ///< a JSON schema
  /// Any thread may call it; it throws if the call fails, and should return soon once it is cancelled.
  std::function<ToolOutput(const Json& arguments, const std::function<bool()>& is_cancelled)> call = {};
};

struct ServerTools {
  std::vector<ServerTool> tools = {};
  int rounds = 8;  ///< of calls in an answer; after that, the model must answer without tools
};

/// A call as the model wrote it.
struct WrittenCall {
  std::string name;
  std::string arguments;  ///< valid JSON, unless the model made a mistake
};

/// A call and its result.
struct ServerCall : WrittenCall {
  ToolOutput output = {};
};

/// Performs a call. An error becomes the call's output, so that the model can correct itself.
ToolOutput perform(const std::vector<ServerTool>& tools, const WrittenCall& call,
                   const std::function<bool()>& is_cancelled);

/// A model's text and calls as a message in OpenAI's form; `ids` are the ids of the calls.
Json assistant_message(const std::string& text, const std::vector<WrittenCall>& calls,
                       const std::vector<std::string>& ids);
/// The result of a call as a message in OpenAI's form.
Json tool_message(const std::string& id, const WrittenCall& call, const ToolOutput& output);

/// Calls that run one after another on a thread of their own.
class RunningCalls {
 public:
  /// The calls are cancelled after this many seconds. The tools must outlive the object.
  RunningCalls(const ServerTools& tools, std::vector<WrittenCall> calls, double seconds);
  /// Cancels the calls, and waits until they have ended, which may take a while.
  ~RunningCalls();
  RunningCalls(const RunningCalls&) = delete;
  RunningCalls& operator=(const RunningCalls&) = delete;

  void cancel() { is_cancelled_ = true; }
  bool are_done() const;
  /// Returns the calls with their outputs.
  std::vector<ServerCall> take() { return calls_.get(); }

 private:
  std::atomic<bool> is_cancelled_ = false;
  std::future<std::vector<ServerCall>> calls_;
};

/// The tools in the form of a chat request, or of a responses request.
Json tools_json(const std::vector<ServerTool>& tools, bool of_chat = true);

}  // namespace jerboa::server
