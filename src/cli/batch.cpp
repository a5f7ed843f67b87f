#include "cli/batch.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/model.h>

#include "base/json_value.h"
#include "cli/answers.h"
#include "cli/arguments.h"
#include "cli/chat_asker.h"
#include "cli/chat_template_check.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BatchRequest {
  Json id;  // from the file, or the line number
  std::string prompt;
  Json messages;
  std::optional<int> max_tokens;
  std::optional<std::uint64_t> seed;
};

// "FILE, line 3: …"
template <class T>
std::optional<T> optional_number(const Json& line, const char* key, std::int64_t least, const std::string& place) {
  if (!line.contains(key)) return std::nullopt;
  const Json& value = line[key];
  if (!value.is_number_integer() || value < least || value > std::numeric_limits<T>::max())
    throw BadArguments(fmt::format("{}: \"{}\" must be a whole number from {} on", place, key, least));
  return value.get<T>();
}

BatchRequest parse_request(const Json& line, int number, const std::string& place) {
  BatchRequest request{.id = number, .prompt = {}, .messages = {}, .max_tokens = {}, .seed = {}};
  if (line.is_string()) {
    request.prompt = line;
  } else if (line.is_object()) {
    for (const auto& [key, value] : line.items())
      if (key != "id" && key != "prompt" && key != "messages" && key != "max_tokens" && key != "seed")
        throw BadArguments(fmt::format(
            "{}: unknown key \"{}\"; a line has \"prompt\" or \"messages\", and may have \"id\", \"max_tokens\" and "
            "\"seed\"",
            place, key));
    if (line.contains("id")) request.id = line["id"];
    if (line.contains("prompt") == line.contains("messages"))
      throw BadArguments(fmt::format("{}: needs either \"prompt\" or \"messages\"", place));
    if (line.contains("prompt") && !line["prompt"].is_string())
      throw BadArguments(fmt::format("{}: \"prompt\" must be a string", place));
    if (line.contains("messages") && !line["messages"].is_array())
      throw BadArguments(fmt::format("{}: \"messages\" must be a list", place));
    request.prompt = line.value("prompt", "");
    if (line.contains("messages")) request.messages = line["messages"];
    request.max_tokens = optional_number<int>(line, "max_tokens", 1, place);
    request.seed = optional_number<std::int64_t>(line, "seed", 0, place);
  } else {
    throw BadArguments(fmt::format("{}: a line must be a JSON object or a string", place));
  }
  if (request.messages.is_null() && request.prompt.empty())
    throw BadArguments(fmt::format("{}: the prompt is empty", place));
  return request;
}

// Checks all lines before the model is loaded.
std::vector<BatchRequest> read_requests(const std::string& file) {
  const std::string name = file == "-" ? "standard input" : file;
  const std::string text = file == "-" ? read_input() : std::string(FileContent(file).text());
  std::vector<BatchRequest> requests;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}, line {}", name, number);
    Json json;
    try {
      json = json_value(JsonValue::parse(line, place));
    } catch (const UsageError& error) {
      throw BadArguments(error.what());
    }
    requests.push_back(parse_request(json, number, place));
  }
  if (requests.empty()) throw BadArguments(fmt::format("{} contains no prompts", name));
  return requests;
}

class BatchRun {
 public:
  BatchRun(LanguageModel& model, const LanguageFlags& flags, bool log_probabilities)
      : model_(model), flags_(flags), log_probabilities_(log_probabilities) {
    if (model.has_chat_template()) asked_.emplace(model, flags.tool_list());
  }

  void run(const std::vector<BatchRequest>& requests) {
    // Enough to keep the model busy; more would only use memory.
    const auto window = 2 * static_cast<std::size_t>(model_.model().scheduling().max_rows);
    for (std::size_t next = 0; next < requests.size() || !running_.empty();) {
      while (next < requests.size() && running_.size() < window) running_.push_back(submit(requests[next++]));
      if (CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
      model_.poll(0.02);
      while (!running_.empty() && (!running_.front().error.empty() || running_.front().stream.ended())) print_first();
    }
    if (cut_ > 0)
      note(fmt::format("{} of {} answers were cut (\"stopped_by\" says why); raise --max-tokens or --context for more",
                       cut_, requests.size()));
    if (has_failed_) throw Exit{ExitCode::failure};
    if (cut_ > 0 && flags_.is_constrained()) throw Exit{ExitCode::cut};
  }

 private:
  struct Running {
    Json id;
    std::optional<ChatAsker::Prepared> question;  // if the request has messages
    language::Stream stream;
    std::string error;
  };

  Running submit(const BatchRequest& request) {
    Running running{request.id, {}, {}, {}};
    try {
      GenerateOptions options = flags_.generation(model_);
      if (request.max_tokens) options.max_tokens = *request.max_tokens;
      if (request.seed) options.sampling->seed = *request.seed;
      std::vector<std::int32_t> prompt;
      if (request.messages.is_null() && flags_.tool_list().empty()) {
        prompt = model_.encode_prompt(request.prompt);
      } else {
        running.question = prepare(request, options);
        prompt = running.question->tokens;
        options = running.question->options;
      }
      if (log_probabilities_) options.logprobs = 0;  // no alternatives
      running.stream = model_.submit(prompt, options);
    } catch (const Error& error) {
      running.error = error.what();
    }
    return running;
  }

  ChatAsker::Prepared prepare(const BatchRequest& request, const GenerateOptions& options) {
    if (!asked_) throw UsageError("the model has no chat template, so it cannot answer messages");
    const Json messages =
        request.messages.is_null() ? Json::array({{{"role", "user"}, {"content", request.prompt}}}) : request.messages;
    return asked_->prepare({.messages = messages,
                            .calls = flags_.is_constrained() ? Calls::forbidden : Calls::allowed,
                            .options = options});
  }

  Json describe_answer(const Running& running, const Generation& result) {
    AnswerDetails details{.log_probabilities = log_probabilities_};
    ChatAnswer answer;
    if (running.question) {
      answer = asked_->read(*running.question, result);
      details.read = &answer;
    }
    return answer_json(result, details);
  }

  void print_first() {
    Running first = std::move(running_.front());
    running_.pop_front();
    Json json{{"id", first.id}};
    const Generation result = first.error.empty() ? first.stream.result() : Generation{};
    if (first.error.empty() && result.reason == StopReason::failed) first.error = result.error;
    if (first.error.empty()) {
      json.update(describe_answer(first, result));
      if (is_cut(result)) ++cut_;
    } else {
      json["error"] = first.error;
      has_failed_ = true;
    }
    write_text(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  LanguageModel& model_;
  const LanguageFlags& flags_;
  std::optional<ChatAsker> asked_;  // empty if the model has no chat template
  bool log_probabilities_, has_failed_ = false;
  std::size_t cut_ = 0;
  std::deque<Running> running_;
};

// Checked before the weights are loaded.
void check_chat_template(const std::string& model, const std::string& file, const std::vector<BatchRequest>& requests,
                         const LanguageFlags& flags) {
  const auto has_messages = [](const BatchRequest& request) { return !request.messages.is_null(); };
  const auto asking = std::find_if(requests.begin(), requests.end(), has_messages);
  if ((asking == requests.end() && flags.tool_list().empty()) || has_chat_template(model_path(model))) return;
  if (asking == requests.end()) throw no_tools_without_template(model, "--tools");
  throw UsageError(fmt::format("{} has no chat template, so it cannot answer messages, which {} holds; use prompts",
                               model, file == "-" ? "standard input" : file));
}

}  // namespace

void run_batch(const std::string& model, const std::string& file, const LanguageFlags& flags, bool log_probabilities) {
  const std::vector<BatchRequest> requests = read_requests(file);
  check_chat_template(model, file, requests, flags);
  LanguageModel opened = flags.open(model);
  const CatchInterrupts catching;
  BatchRun(opened, flags, log_probabilities).run(requests);
  flags.write_trace(opened);
}

}  // namespace jerboa::cli
