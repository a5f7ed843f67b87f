#include "server/metrics.h"

#include <fmt/format.h>
#include <functional>

#include "server/log.h"

namespace jerboa::server {
namespace {

using Clock = std::chrono::steady_clock;

// A metric of a loaded model.
struct Reported {
  const char *name, *type, *help;
  std::function<double(const ModelWorker::Status& status)> value;
};

const std::vector<Reported>& reported() {
  using Status = ModelWorker::Status;
  static const std::vector<Reported> all = {
      {"requests_unfinished", "gauge", "Requests that wait or are computed",
       [](const Status& s) { return static_cast<double>(s.unfinished); }},
      {"prompt_tokens_total", "counter", "Tokens of prompts",
       [](const Status& s) { return static_cast<double>(s.statistics->prompt_tokens); }},
      {"prompt_tokens_reused_total", "counter", "Tokens of prompts that were in the cache",
       [](const Status& s) { return static_cast<double>(s.statistics->reused); }},
      {"generated_tokens_total", "counter", "Tokens after prompts",
       [](const Status& s) { return static_cast<double>(s.statistics->generated); }},
      {"drafted_tokens_total", "counter", "Tokens that were guessed",
       [](const Status& s) { return static_cast<double>(s.statistics->drafted); }},
      {"accepted_tokens_total", "counter", "Guesses that were right",
       [](const Status& s) { return static_cast<double>(s.statistics->accepted); }},
      {"steps_total", "counter", "Steps of the device",
       [](const Status& s) { return static_cast<double>(s.statistics->steps); }},
      {"busy_seconds_total", "counter", "Time with at least one step on the device",
       [](const Status& s) { return s.statistics->seconds; }},
      {"mean_batch", "gauge", "Texts per decode step, on average",
       [](const Status& s) { return s.statistics->mean_batch(); }},
      {"first_token_seconds_mean", "gauge", "Time to the first token, on average",
       [](const Status& s) { return s.statistics->first_token_seconds; }},
      {"preemptions_total", "counter", "Texts that had to give up their place in the cache",
       [](const Status& s) { return static_cast<double>(s.statistics->preempted); }},
      {"cache_usage_ratio", "gauge", "Share of the cache's blocks that texts in progress use, of the layers with most",
       [](const Status& s) { return s.statistics->cache_usage(); }},
      {"weight_bytes", "gauge", "Memory of the weights",
       [](const Status& s) { return static_cast<double>(s.statistics->weight_bytes); }},
      {"cache_bytes", "gauge", "Memory of the key/value cache",
       [](const Status& s) { return static_cast<double>(s.statistics->cache_bytes); }},
  };
  return all;
}

std::string escaped(const std::string& label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

}  // namespace

class Metrics::CountedExchange final : public Exchange {
 public:
  CountedExchange(Metrics& metrics, const HttpRequest& request, std::string route, std::shared_ptr<Exchange> exchange)
      : metrics_(metrics), route_(std::move(route)), exchange_(std::move(exchange)) {
    if (metrics_.logs_requests_ && !is_polled(request.path)) line_ = logged(request);
    metrics_.begin();
  }
  ~CountedExchange() override {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    metrics_.end(seconds);
    if (line_.empty()) return;
    log_line(fmt::format("{} {} {:.0f} ms{}{}", line_, status_ > 0 ? std::to_string(status_) : "unanswered",
                         seconds * 1000, note_.empty() ? "" : ", " + note_,
                         exchange_->is_closed() ? ", the client went away" : ""));
  }
  CountedExchange(const CountedExchange&) = delete;
  CountedExchange& operator=(const CountedExchange&) = delete;

  void respond(HttpResponse response) override {
    answer(response.status);
    exchange_->respond(std::move(response));
  }
  void start(HttpResponse head) override {
    answer(head.status);
    exchange_->start(std::move(head));
  }
  void write(std::string data) override { exchange_->write(std::move(data)); }
  void finish() override { exchange_->finish(); }
  void abort() override { exchange_->abort(); }
  bool is_closed() const override { return exchange_->is_closed(); }
  void note(std::string text) override { note_ = std::move(text); }

 private:
  // Paths that programs and the page poll every few seconds.
  static bool is_polled(const std::string& path) {
    return path == "/health" || path == "/metrics" || path == "/v1/metrics";
  }
  void answer(int status) {
    status_ = status;
    metrics_.answer(route_, status);
  }

  Metrics& metrics_;
  std::string route_, line_, note_;
  int status_ = 0;
  std::shared_ptr<Exchange> exchange_;
  Clock::time_point start_ = Clock::now();
};

std::shared_ptr<Exchange> Metrics::count(const HttpRequest& request, const std::string& route,
                                         std::shared_ptr<Exchange> exchange) {
  return std::make_shared<CountedExchange>(*this, request, route, std::move(exchange));
}

void Metrics::begin() {
  const std::lock_guard lock(mutex_);
  ++in_progress_;
}

void Metrics::answer(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void Metrics::end(double seconds) {
  const std::lock_guard lock(mutex_);
  --in_progress_;
  ++ended_;
  seconds_ += seconds;
}

std::string Metrics::print(const std::vector<ModelMetrics>& models) const {
  std::string out;
  const auto describe = [&](const std::string& name, const char* type, const char* help) {
    out += fmt::format("# HELP jerboa_{} {}.\n# TYPE jerboa_{} {}\n", name, help, name, type);
  };
  {
    const std::lock_guard lock(mutex_);
    describe("http_answers_total", "counter", "Answers by route and status");
    for (const auto& [key, count] : answers_)
      out += fmt::format("jerboa_http_answers_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
    describe("http_requests_in_progress", "gauge", "Requests that are not answered yet");
    out += fmt::format("jerboa_http_requests_in_progress {}\n", in_progress_);
    describe("http_request_seconds", "summary", "Time from request to the end of the answer");
    out += fmt::format("jerboa_http_request_seconds_sum {}\njerboa_http_request_seconds_count {}\n", seconds_, ended_);
  }
  describe("model_loaded", "gauge", "Whether a model is in memory");
  for (const ModelMetrics& model : models)
    out += fmt::format("jerboa_model_loaded{{model=\"{}\"}} {}\n", escaped(model.name), model.status.is_loaded ? 1 : 0);
  for (const Reported& row : reported()) {
    describe(row.name, row.type, row.help);
    for (const ModelMetrics& model : models)
      if (model.status.statistics)
        out += fmt::format("jerboa_{}{{model=\"{}\"}} {}\n", row.name, escaped(model.name), row.value(model.status));
  }
  return out;
}

Json Metrics::json(const std::vector<ModelMetrics>& models) const {
  Json out = {{"models", Json::array()}};
  for (const ModelMetrics& model : models) {
    Json one = {{"id", model.name}, {"loaded", model.status.is_loaded}};
    if (model.status.statistics)
      for (const Reported& row : reported()) one[row.name] = row.value(model.status);
    out["models"].push_back(std::move(one));
  }
  const std::lock_guard lock(mutex_);
  out["requests_in_progress"] = in_progress_;
  return out;
}

}  // namespace jerboa::server
