#include "mcp/server.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "base/parse_json.h"
#include "mcp/line_buffer.h"
#include "mcp/protocol.h"

namespace jerboa::mcp {
namespace {

struct Call {
  Json id, params;
  std::shared_ptr<std::atomic<bool>> is_cancelled = std::make_shared<std::atomic<bool>>(false);
};

class ServedConnection {
 public:
  ServedConnection(const std::vector<Tool>& tools, std::string version, int input, int output)
      : tools_(tools), version_(std::move(version)), input_(input), output_(output) {}

  void run() {
    std::thread reader([this] { read(); });
    while (const std::optional<Call> call = next_call()) {
      perform(*call);
      const std::lock_guard lock(mutex_);
      running_.erase(call->id.dump());
    }
    reader.join();
  }

 private:
  // Runs on the reader's thread.
  void read() {
    LineBuffer lines;
    std::array<char, 65536> part;
    for (;;) {
      const ssize_t count = ::read(input_, part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      lines.add({part.data(), static_cast<std::size_t>(count)});
      while (const auto line = lines.take())
        if (!line->empty()) handle(*line);
      if (lines.size() > max_message_bytes) break;
    }
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    calls_.clear();
    for (const auto& [id, is_cancelled] : running_) *is_cancelled = true;
    changed_.notify_all();
  }

  void handle(const std::string& line) {
    Json message;
    try {
      message = parse_ordered_json(line, "the message");
    } catch (const FileError& error) {
      return send(make_error(nullptr, parse_error, error.what()));
    }
    const std::string method = text_of(message, "method");
    const bool is_request = message.is_object() && message.contains("id");
    if (method.empty()) {
      if (!message.is_object() || !(message.contains("result") || message.contains("error")))
        send(make_error(is_request ? message["id"] : Json(), invalid_request, "a message needs a \"method\""));
      return;
    }
    const Json params = message.value("params", Json::object());
    if (is_request)
      request(message["id"], method, params);
    else if (method == "notifications/cancelled" && params.is_object())
      cancel(params.value("requestId", Json()));
  }

  void request(const Json& id, const std::string& method, const Json& params) {
    if (method == "initialize") return send(make_result(id, introduction(params)));
    if (method == "ping") return send(make_result(id, Json::object()));
    if (method == "tools/list") return send(make_result(id, {{"tools", descriptions()}}));
    if (method != "tools/call") return send(make_error(id, method_not_found, fmt::format("there is no {}", method)));
    const std::lock_guard lock(mutex_);
    const Call& call = calls_.emplace_back(Call{id, params});
    running_[id.dump()] = call.is_cancelled;
    changed_.notify_all();
  }

  Json introduction(const Json& params) const {
    const std::string wanted = text_of(params, "protocolVersion");
    return {{"protocolVersion", is_known_version(wanted) ? wanted : std::string(protocol_versions[0])},
            {"capabilities", {{"tools", Json::object()}}},
            {"serverInfo", {{"name", "jerboa"}, {"version", version_}}}};
  }

  Json descriptions() const {
    Json list = Json::array();
    for (const Tool& tool : tools_)
      list.push_back({{"name", tool.name}, {"description", tool.description}, {"inputSchema", tool.parameters}});
    return list;
  }

  void cancel(const Json& id) {
    const std::lock_guard lock(mutex_);
    if (const auto found = running_.find(id.dump()); found != running_.end()) *found->second = true;
  }

  // Runs on the thread that calls the tools.
  std::optional<Call> next_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || !calls_.empty(); });
    if (calls_.empty()) return std::nullopt;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }

  void perform(const Call& call) {
    const std::string name = text_of(call.params, "name");
    const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& one) { return one.name == name; });
    if (tool == tools_.end())
      return send(make_error(call.id, invalid_params, fmt::format("there is no tool '{}'", name)));
    const Json arguments = call.params.value("arguments", Json::object());
    if (!arguments.is_object()) return send(make_error(call.id, invalid_params, "\"arguments\" must be an object"));
    ToolResult result;
    try {
      result = tool->call(arguments, context_of(call));
    } catch (const std::exception& error) {
      result = {error.what(), true};
    }
    if (*call.is_cancelled) return;  // the client does not wait for the answer any more
    Json answer{{"content", Json::array({{{"type", "text"}, {"text", result.text}}})}};
    if (result.is_error) answer["isError"] = true;
    send(make_result(call.id, std::move(answer)));
  }

  CallContext context_of(const Call& call) {
    CallContext context;
    context.is_cancelled = [flag = call.is_cancelled] { return flag->load(); };
    const Json meta = call.params.value("_meta", Json::object());
    const Json token = meta.is_object() ? meta.value("progressToken", Json()) : Json();
    if (!token.is_null())
      context.on_progress = [this, token](double done, double total) {
        Json params{{"progressToken", token}, {"progress", done}};
        if (total > 0) params["total"] = total;
        send(make_notification("notifications/progress", std::move(params)));
      };
    return context;
  }

  // A client that has disconnected also closes the input, so it is enough to stop writing.
  void send(const Json& message) {
    const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(output_mutex_);
    for (std::string_view rest = line; !rest.empty();) {
      const ssize_t count = write(output_, rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  const std::vector<Tool>& tools_;
  std::string version_;
  int input_, output_;
  std::mutex mutex_, output_mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;
  std::map<std::string, std::shared_ptr<std::atomic<bool>>> running_;  // by id: calls that run or wait to run
  bool is_over_ = false;
};

}  // namespace

void serve(const std::vector<Tool>& tools, const std::string& version, int input, int output) {
  ServedConnection(tools, version, input, output).run();
}

}  // namespace jerboa::mcp
