#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <jerboa/language/runner.h>
#include <jerboa/serving/scheduler.h>

#include "language/drafter.h"
#include "language/statistics_collector.h"
#include "language/trace.h"

namespace jerboa::language {

/// The output of a stream so far; guarded by the engine's mutex.
struct StreamState {
  serving::SequenceId id = 0;
  double arrived = 0;
  std::deque<TextPiece> pieces = {};
  std::function<void(const TextPiece& piece)> on_token = {};
  Generation result = {};
  bool ended = false;
};

/// The decode loop around a Scheduler and a Model, shared by the threads of a Runner. One thread at a time drives it:
/// it takes steps from the scheduler, runs them on the model and delivers the results. The lock is not held while a
/// step runs.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(std::shared_ptr<Model> model);
  ~Engine();

  Stream submit(std::vector<std::int32_t> prompt, const GenerateOptions& options);
  Stream fork(const StreamState& parent, const GenerateOptions& options);
  std::optional<TextPiece> next(StreamState& state);
  std::optional<TextPiece> take(StreamState& state);
  void cancel(StreamState& state);
  bool ended(const StreamState& state) const;
  Generation result(const StreamState& state) const;
  bool poll(double seconds);
  void draft_with(std::shared_ptr<Model> model);

  ReservedBlocks reserve(std::int64_t tokens);
  void give_back(std::unique_ptr<serving::TextBlocks> blocks);
  /// Calls `use` with the scheduler while no step is in flight and no other thread drives the engine.
  template <class Use>
  auto exclusively(const Use& use);
  void clear_cache();

  Statistics statistics() const;
  void start_trace();
  void write_trace(const std::filesystem::path& path) const;
  Model& model() const { return *model_; }

 private:
  struct Submitted {
    serving::Step step;
    Model::Running running;
    std::exception_ptr error;
    double start;
  };
  using Lock = std::unique_lock<std::mutex>;
  /// Marks the engine as driven until the end of its scope, including when an exception ends the turn; other threads
  /// wait for that.
  class Turn {
   public:
    Turn(Engine& engine, Lock& lock) : engine_(engine), lock_(lock) { engine_.is_driven_ = true; }
    Turn(const Turn&) = delete;
    ~Turn();

   private:
    Engine& engine_;
    Lock& lock_;
  };

  /// Called without the lock, because compiling a grammar takes long the first time. draft_by decides who makes the
  /// drafts.
  serving::SequenceOptions sequence_options(const GenerateOptions& options, double now) const;
  void draft_by(serving::SequenceOptions& options) const;
  Stream add_stream(serving::SequenceId id, const GenerateOptions& options, double now);
  /// Submits every step that is ready, completes the oldest one and delivers events; returns false if there was nothing
  /// to do. The caller holds the lock and is the driving thread.
  bool drive(Lock& lock);
  /// Waits until drive() may have work again, but no longer than `until`.
  void wait_for_change(Lock& lock, double until);
  void note_change();
  void submit_next(Lock& lock);
  void submit_step(Lock& lock, serving::Step step);
  /// Lets the draft model propose tokens for the sequences that await them.
  void suggest_drafts(Lock& lock);
  void give_up_drafter(const std::string& failure);
  void complete_oldest(Lock& lock);
  void deliver(const std::vector<serving::Event>& events);
  void finish(StreamState& state, const serving::Event& event);

  std::shared_ptr<Model> model_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_driven_ = false;
  std::uint64_t changes_ = 0;                    // counts changes, which idle threads wait for
  std::optional<std::thread::id> state_holder_;  // holds ReservedBlocks, if layers are recurrent
  serving::Scheduler scheduler_;
  std::unique_ptr<Drafter> drafter_;  // if there is a draft model; used by the driving thread
  std::deque<Submitted> submitted_;
  std::map<serving::SequenceId, std::shared_ptr<StreamState>> streams_;
  StatisticsCollector collector_;
  std::optional<Trace> trace_;
};

template <class Use>
auto Engine::exclusively(const Use& use) {
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_driven_; });
  {
    const Turn turn(*this, lock);
    while (!submitted_.empty()) complete_oldest(lock);
  }
  return use(scheduler_);
}

}  // namespace jerboa::language
