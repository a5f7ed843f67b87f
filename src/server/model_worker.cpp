#include "server/model_worker.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "server/log.h"

namespace jerboa::server {
namespace {

constexpr std::chrono::milliseconds rest_period(5);
constexpr double encoder_wait_seconds = 1;  // for other models to make room, while this one generates nothing

std::string readable(std::int64_t bytes) {
  return bytes < (std::int64_t{1} << 30) ? fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20))
                                         : fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

bool MemoryBudget::take(std::int64_t bytes, const std::function<bool()>& ask_one_to_go,
                        const std::function<bool()>& gives_up) {
  std::unique_lock lock(mutex_);
  while (is_limited() && taken_ + bytes > bytes_) {
    lock.unlock();
    ask_one_to_go();
    if (gives_up()) return false;
    lock.lock();
    if (taken_ + bytes > bytes_) changed_.wait_for(lock, std::chrono::milliseconds(50));
  }
  taken_ += bytes;
  return true;
}

void MemoryBudget::give_back(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  taken_ -= bytes;
  changed_.notify_all();
}

ModelWorker::ModelWorker(ServedModel served, WorkerOptions options, MemoryBudget& budget,
                         std::function<bool()> make_room)
    : served_(std::move(served)), options_(std::move(options)), budget_(budget), make_room_(std::move(make_room)) {}

ModelWorker::~ModelWorker() {
  stop();
  unload();
}

void ModelWorker::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();  // no other thread touches it once the worker is stopped
}

void ModelWorker::reserve(std::int64_t bytes, const std::function<bool()>& gives_up) {
  if (budget_.is_limited() && taken_bytes_ + bytes > budget_.bytes())
    throw ApiError(400,
                   fmt::format("{} needs {} of memory, but --memory allows {}; start the server with more, or with "
                               "smaller --weights, --context or --cache-tokens",
                               served_.name, readable(taken_bytes_ + bytes), readable(budget_.bytes())),
                   "model", "model_too_large");
  if (!budget_.take(bytes, make_room_, gives_up))
    throw ApiError(
        503, fmt::format("there is no room for {} beside the models that are in use; try again later", served_.name));
  taken_bytes_ += bytes;
}

void ModelWorker::ensure_loaded(const std::function<bool()>& gives_up) {
  if (model_) return;
  const double start = steady_seconds();
  std::shared_ptr<LoadedModel> loaded;
  if (options_.logs_loading) log_line(fmt::format("loading {}", served_.name));
  try {
    // An encoder that is loaded later, for a decoder, must not hold up texts.
    auto is_loading = std::make_shared<bool>(true);
    loaded = std::make_shared<LoadedModel>(served_, options_.model, [=, this](std::int64_t bytes) {
      const double since = steady_seconds();
      reserve(bytes, [&] { return *is_loading ? gives_up() : steady_seconds() > since + encoder_wait_seconds; });
    });
    *is_loading = false;
    last_used_ = steady_seconds();  // before look_after() sees it, which unloads models that were idle for too long
    const std::lock_guard lock(mutex_);
    model_ = loaded;
  } catch (const ApiError&) {
    budget_.give_back(std::exchange(taken_bytes_, 0));
    throw;
  } catch (const std::exception& error) {
    budget_.give_back(std::exchange(taken_bytes_, 0));
    if (is_loaded_at_start_) throw;
    log_line(fmt::format("error: {} cannot be loaded: {}", served_.name, error.what()));
    throw ApiError(500, fmt::format("the model {} cannot be loaded; the server's log says why", served_.name));
  }
  if (options_.logs_loading)
    log_line(
        fmt::format("loaded {} in {:.1f} s, {}", served_.name, steady_seconds() - start, readable(loaded->bytes())));
}

void ModelWorker::unload() {
  std::shared_ptr<LoadedModel> model;
  {
    const std::lock_guard lock(mutex_);
    model = std::move(model_);
    is_unloading_ = false;
  }
  if (!model) return;
  if (options_.logs_loading) log_line(fmt::format("unloaded {}", served_.name));
  model.reset();
  budget_.give_back(std::exchange(taken_bytes_, 0));
}

void ModelWorker::load() {
  is_loaded_at_start_ = true;
  ensure_loaded([] { return false; });
  is_loaded_at_start_ = false;
}

void ModelWorker::submit(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) throw ApiError(503, "the server is shutting down");
  if (unfinished_ >= static_cast<std::size_t>(options_.queue))
    throw ApiError(429, fmt::format("{} requests are unfinished, which is the limit; try again later", unfinished_), "",
                   "queue_full");
  ++unfinished_;
  last_used_ = steady_seconds();
  arrived_.push_back(std::move(task));
  start_thread();
  changed_.notify_all();
}

void ModelWorker::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

bool ModelWorker::ask_to_unload() {
  const std::lock_guard lock(mutex_);
  if (!model_ || unfinished_ > 0 || is_unloading_ || is_stopped_) return false;
  is_unloading_ = true;
  start_thread();
  changed_.notify_all();
  return true;
}

bool ModelWorker::is_idle() const {
  const std::lock_guard lock(mutex_);
  return model_ && unfinished_ == 0 && !is_unloading_;
}

ModelWorker::Status ModelWorker::status() const {
  std::shared_ptr<LoadedModel> model;
  Status out;
  {
    const std::lock_guard lock(mutex_);
    model = model_;
    out.unfinished = static_cast<int>(unfinished_);
  }
  if (!model) return out;
  out.is_loaded = true;
  out.context = model->context();
  if (!model->generates()) return out;
  out.parameters = model->language().parameters();
  out.statistics = model->language().statistics();
  return out;
}

void ModelWorker::run() {
  while (wait_for_work()) {
    if (!load_for_tasks()) continue;
    start_tasks();
    if (active_.empty()) continue;
    if (model_->generates()) model_->language().poll(0);
    pump_tasks();
    rest();
  }
  for (const std::shared_ptr<Task>& task : active_) cancel_calls(*task);
  active_.clear();
  left_calls_.clear();
}

// While tools run, there may be nothing to compute.
void ModelWorker::rest() {
  const auto is_waiting = [](const std::shared_ptr<Task>& task) { return task->is_waiting(); };
  if (active_.empty() || !std::all_of(active_.begin(), active_.end(), is_waiting)) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, rest_period, [this] { return is_stopped_ || !arrived_.empty(); });
}

// Returns false once the worker is stopped.
bool ModelWorker::wait_for_work() {
  forget_ended_calls();
  std::unique_lock lock(mutex_);
  const auto has_work = [this] { return is_stopped_ || is_unloading_ || !arrived_.empty(); };
  if (active_.empty() && !left_calls_.empty())
    changed_.wait_for(lock, rest_period, has_work);
  else if (active_.empty())
    changed_.wait(lock, has_work);
  if (is_stopped_) return false;
  const bool unloads = std::exchange(is_unloading_, false) && arrived_.empty() && active_.empty();
  lock.unlock();
  if (unloads) unload();
  return true;
}

// Tasks stay where look_after() finds them until the model is loaded; all of them may have been abandoned by then.
bool ModelWorker::load_for_tasks() {
  if (model_) return true;
  const auto gives_up = [this] {
    const std::lock_guard lock(mutex_);
    return is_stopped_ || arrived_.empty();
  };
  if (gives_up()) return false;
  try {
    ensure_loaded(gives_up);
    return true;
  } catch (const std::exception& error) {
    fail_all(take_arrived(), to_api_error(error));
    return false;
  }
}

ModelWorker::Tasks ModelWorker::take_arrived() {
  const std::lock_guard lock(mutex_);
  return std::exchange(arrived_, {});
}

void ModelWorker::fail_all(const Tasks& tasks, const ApiError& error) {
  for (const std::shared_ptr<Task>& task : tasks) task->fail(error);
  const std::lock_guard lock(mutex_);
  unfinished_ -= tasks.size();
}

void ModelWorker::look_after() {
  Tasks expired;
  bool is_over_due = false;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(arrived_.begin(), arrived_.end(), [](const std::shared_ptr<Task>& task) {
      return task->seconds_left() > 0 && !task->is_abandoned();
    });
    expired.assign(first, arrived_.end());
    arrived_.erase(first, arrived_.end());
    is_over_due = options_.idle_seconds > 0 && steady_seconds() > last_used_ + options_.idle_seconds;
  }
  fail_all(expired, late(options_.seconds));
  if (is_over_due) ask_to_unload();
}

void ModelWorker::start_tasks() {
  for (std::shared_ptr<Task>& task : take_arrived()) {
    try {
      if (task->is_abandoned()) throw ApiError(408, "the client went away");
      task->start(*model_);
      active_.push_back(std::move(task));
    } catch (const std::exception& error) {
      fail_all({task}, to_api_error(error));
    }
  }
}

void ModelWorker::pump_tasks() {
  last_used_ = steady_seconds();  // before anyone is notified, so that models stay ordered by last use
  const auto is_finished = [](const std::shared_ptr<Task>& task) {
    try {
      return task->is_abandoned() || task->pump();
    } catch (const std::exception& error) {
      task->fail(to_api_error(error));
      return true;
    }
  };
  const std::size_t calls_before = left_calls_.size();
  for (std::shared_ptr<Task>& task : active_) {
    if (!is_finished(task)) continue;
    cancel_calls(*task);
    task.reset();
  }
  const std::size_t ended = std::erase(active_, nullptr);
  if (ended == 0) return;
  const std::lock_guard lock(mutex_);
  unfinished_ -= ended - (left_calls_.size() - calls_before);
}

// Does not wait until tools notice the cancellation, which would hold up other requests.
void ModelWorker::cancel_calls(Task& task) {
  std::unique_ptr<RunningCalls> calls = task.take_calls();
  if (!calls) return;
  calls->cancel();
  left_calls_.push_back(std::move(calls));
}

// A request counts as unfinished until its calls have ended, so the queue's limit covers them, too.
void ModelWorker::forget_ended_calls() {
  const std::size_t ended = std::erase_if(left_calls_, [](const auto& calls) { return calls->are_done(); });
  if (ended == 0) return;
  const std::lock_guard lock(mutex_);
  unfinished_ -= ended;
}

}  // namespace jerboa::server
