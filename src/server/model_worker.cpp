#include "server/model_worker.h"

#include <chrono>
#include <fmt/format.h>

namespace jerboa::server {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

bool MemoryBudget::take(std::int64_t bytes, const std::function<bool()>& ask_one_to_go,
                        const std::function<bool()>& is_stopped) {
  std::unique_lock lock(mutex_);
  while (bytes_ > 0 && taken_ > 0 && taken_ + bytes > bytes_) {
    lock.unlock();
    ask_one_to_go();
    if (is_stopped()) return false;
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

ModelWorker::ModelWorker(ServedModel served, LanguageModelOptions options, int queue, MemoryBudget& budget,
                         std::function<bool()> make_room)
    : served_(std::move(served)),
      options_(std::move(options)),
      queue_(static_cast<std::size_t>(queue)),
      budget_(budget),
      make_room_(std::move(make_room)) {}

ModelWorker::~ModelWorker() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  unload();
}

// What a model takes is known once it was loaded; before, its files say about how much.
std::int64_t ModelWorker::expected_bytes() const {
  namespace fs = std::filesystem;
  if (known_bytes_ > 0) return known_bytes_;
  if (!fs::is_directory(served_.path)) return static_cast<std::int64_t>(fs::file_size(served_.path));
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(served_.path))
    if (entry.path().extension() == ".safetensors") bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

void ModelWorker::ensure_loaded() {
  if (model_) return;
  const std::int64_t bytes = expected_bytes();
  const auto is_stopped = [this] {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  };
  if (!budget_.take(bytes, make_room_, is_stopped)) throw ApiError(503, "the server is shutting down");
  taken_bytes_ = bytes;
  try {
    auto loaded = std::make_shared<LoadedModel>(served_, options_);
    if (loaded->generates()) {
      const language::Statistics sizes = loaded->language().statistics();
      known_bytes_ = sizes.weight_bytes + sizes.cache_bytes;
    }
    const std::lock_guard lock(mutex_);
    model_ = std::move(loaded);
  } catch (...) {
    budget_.give_back(std::exchange(taken_bytes_, 0));
    throw;
  }
}

void ModelWorker::unload() {
  std::shared_ptr<LoadedModel> model;
  {
    const std::lock_guard lock(mutex_);
    model = std::move(model_);
    is_unloading_ = false;
  }
  if (!model) return;
  model.reset();
  budget_.give_back(std::exchange(taken_bytes_, 0));
}

void ModelWorker::load() {
  ensure_loaded();
  last_used_ = now();
}

void ModelWorker::submit(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  if (unfinished_ >= queue_)
    throw ApiError(429, fmt::format("{} requests are unfinished, which is the limit; try again later", unfinished_), "",
                   "queue_full");
  ++unfinished_;
  last_used_ = now();
  arrived_.push_back(std::move(task));
  start_thread();
  changed_.notify_all();
}

void ModelWorker::start_thread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

bool ModelWorker::ask_to_unload() {
  const std::lock_guard lock(mutex_);
  if (!model_ || unfinished_ > 0 || is_unloading_) return false;
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
  for (;;) {
    wait_for_work();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopped_) break;
    }
    start_tasks();
    if (active_.empty()) continue;
    if (model_->generates()) model_->language().poll(0);
    pump_tasks();
  }
  active_.clear();
}

void ModelWorker::wait_for_work() {
  std::unique_lock lock(mutex_);
  if (!active_.empty()) return;
  changed_.wait(lock, [this] { return is_stopped_ || is_unloading_ || !arrived_.empty(); });
  if (!is_unloading_ || is_stopped_) return;
  const bool is_wanted = !arrived_.empty();
  lock.unlock();
  if (is_wanted) {
    const std::lock_guard again(mutex_);
    is_unloading_ = false;
  } else {
    unload();
  }
}

void ModelWorker::start_tasks() {
  std::deque<std::shared_ptr<Task>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
  }
  for (std::shared_ptr<Task>& task : arrived) {
    try {
      if (task->is_abandoned()) throw ApiError(408, "the client went away");
      ensure_loaded();
      task->start(*model_);
      active_.push_back(std::move(task));
      continue;
    } catch (const std::exception& error) {
      task->fail(to_api_error(error));
    }
    const std::lock_guard lock(mutex_);
    --unfinished_;
  }
}

void ModelWorker::pump_tasks() {
  const auto is_finished = [](const std::shared_ptr<Task>& task) {
    try {
      return task->is_abandoned() || task->pump();
    } catch (const std::exception& error) {
      task->fail(to_api_error(error));
      return true;
    }
  };
  const std::size_t finished = std::erase_if(active_, is_finished);
  if (finished == 0) return;
  const std::lock_guard lock(mutex_);
  unfinished_ -= finished;
  last_used_ = now();
}

}  // namespace jerboa::server
