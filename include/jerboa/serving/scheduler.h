#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/serving/page_pool.h>
#include <jerboa/serving/prefix_tree.h>
#include <jerboa/serving/sequence.h>
#include <jerboa/serving/state_slots.h>
#include <jerboa/serving/step.h>

namespace jerboa::serving {

/// Layers that see only the latest positions, in a model with others that see more. They have separate blocks, and keep
/// only the part of a text that its next tokens still see.
struct WindowedLayers {
  int window = 0;  ///< how many of the latest positions a token sees, including itself
  int blocks = 0;
};

struct SchedulerOptions {
  int blocks = 256, block_size = 16;  ///< of the key/value cache
  /// Groups of layers with windows, if others have none or larger ones. Not with state_slots.
  std::vector<WindowedLayers> windowed = {};
  int context = 0;           ///< the most tokens of a sequence; 0, or more than the cache holds: the cache's capacity
  int max_rows = 64;         ///< per step, and the most sequences that run at once
  int chunk = 128;           ///< the most prompt tokens per row
  int prefill_tokens = 512;  ///< the most prompt tokens per step
  /// The width, in tokens, of the rows of mixed steps, where long prompts take several rows. 0: prompts and decoding
  /// take turns.
  int mixed_time = 0;
  bool always_mixed = false;  ///< rows of mixed_time tokens even if there are only prompts: all steps are alike
  /// The most tokens of a step of prompts including padding: rows times the longest row; 0: any number.
  int prefill_cells = 0;
  bool pipelined = true;       ///< next() may be called again before the step is complete
  bool prefix_cache = true;    ///< share the cache between texts with a common prefix
  int vocabulary = 0;          ///< if positive, prompts are checked against it
  bool device_samples = true;  ///< otherwise the host draws every token from logits
  bool device_masks = false;   ///< otherwise sequences with a constraint are sampled on the host; needs `vocabulary`
  /// Otherwise sequences with penalties, biases or banned tokens are sampled on the host.
  bool device_penalises = false;
  /// How many of the latest positions a token sees, including itself, if every layer of the model has a window (then
  /// the largest); 0: all. Earlier positions are given back when the cache is full. Not with state_slots.
  int window = 0;
  int state_slots = 0;  ///< for the states of recurrent layers: one per running sequence, and some for snapshots
  /// The sizes that steps may have, in ascending order; by default powers of two.
  std::vector<int> row_buckets = {}, time_buckets = {}, block_buckets = {};
};

/// An event of a sequence: a token, or the end, with the statistics, or both.
struct Event {
  SequenceId id = 0;
  std::optional<std::int32_t> token = {};
  std::optional<TokenLogprobs> logprobs = {};  ///< of the token, if the sequence wants them
  std::string text = {};                       ///< that became final, if the sequence has a TextStream
  std::optional<FinishReason> finished = {};
  std::string error = {};  ///< why the sequence failed
  SequenceStatistics statistics = {};
};

struct SchedulerStatistics {
  std::int64_t added = 0, refused = 0, finished = 0, preemptions = 0;
  std::int64_t steps = 0, rows = 0, tokens = 0;  ///< without padding
  std::int64_t padding = 0;                      ///< tokens
  std::int64_t prompt_tokens = 0, reused = 0;    ///< of admitted sequences
  std::int64_t drafted = 0, accepted = 0;
};

struct StepSizes;

/// The most blocks of windowed layers that a text needs at any time, if steps in flight compute this many of its
/// tokens.
int most_windowed_blocks(const SchedulerOptions& options, int window, std::int64_t in_flight);
/// The same for a sequence.
int most_windowed_blocks(const SchedulerOptions& options, int window);

/// A block to be filled with the content of a saved one.
struct RestoredBlock {
  std::size_t saved = 0;  ///< an index into the blocks that save() listed
  Block block = 0;
};

/// The blocks and states that the host must fill before the next step.
struct Restored {
  std::vector<RestoredBlock> blocks = {};
  std::vector<std::vector<RestoredBlock>> windowed = {};  ///< by group; indices into SavedWindow::blocks
  std::int32_t state = no_slot;                           ///< the slot for the saved states of recurrent layers
  std::int64_t tokens = 0;  ///< how many tokens longer the prefix that texts can continue from has become
};

/// Blocks for a text that the host computes alongside the sequences, one chunk at a time.
class TextBlocks {
 public:
  TextBlocks(PageTable whole, std::vector<PageTable> windowed)
      : whole_(std::move(whole)), rings_(std::move(windowed)) {}

  const std::vector<Block>& table() const { return whole_.blocks(); }
  /// The blocks of layers with a window, a few of which are reused in turn.
  std::vector<Block> windowed(std::size_t group) const;

 private:
  PageTable whole_;
  std::vector<PageTable> rings_;
};

/// Runs many sequences over one paged cache. It decides what to compute next and does all the bookkeeping, but runs
/// nothing itself: it uses no device, no thread, no clock and no file, so that any host can drive it.
///
///     while (auto step = scheduler.next(now)) submit(*step);
///     for (const Event& event : scheduler.complete(step, results, now)) …
///
/// Every round decodes one token (or more, with drafts) of each running sequence; prompts are computed in chunks
/// between or alongside that, in turns. Sequences are admitted in order of arrival. If the cache is full, blocks are
/// taken first from cached prefixes that nobody uses, then from positions before the windows, and then from the
/// sequence that arrived last, which waits and is recomputed later; the oldest therefore always makes progress. Not
/// thread-safe.
class Scheduler {
 public:
  /// Throws UsageError if an option is out of range.
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  /// Queues a prompt. Throws UsageError if it can never run: it is empty or exceeds the context, or an option is out of
  /// range.
  SequenceId add(std::vector<std::int32_t> prompt, SequenceOptions options, double now);
  /// A sequence whose prompt is everything that another one holds so far, and which shares its cache: several answers
  /// to one prompt, each with its own seed. Throws UsageError if the other has ended.
  SequenceId fork(SequenceId id, SequenceOptions options, double now);
  /// Ends a sequence at once, even within a step; false if it has ended already.
  bool cancel(SequenceId id, double now);

  /// The sequences with DraftSource::host that wait for a draft.
  std::vector<SequenceId> awaiting_drafts() const;
  /// Supplies guesses, or none, at the tokens that follow those of a sequence, which may then be part of the next step.
  /// A guess is accepted if the model draws the same token, so a draft model should propose its most likely tokens.
  /// Throws UsageError if the sequence does not await a draft.
  void suggest(SequenceId id, std::vector<std::int32_t> draft);
  /// From now on all sequences guess by prompt lookup, because the host no longer drafts.
  void draft_by_lookup();

  /// The next step, or none: no sequence is left, or all wait for steps in flight, for drafts from the host, or for
  /// blocks that a TextBlocks holds. There is always a step if has_work(), nothing is in flight, no draft is awaited
  /// and no TextBlocks exists.
  std::optional<Step> next(double now);
  /// Takes the results of the oldest step in flight; returns the events since the last call. Throws UsageError, and
  /// changes nothing, if it is another step or results are missing.
  std::vector<Event> complete(const Step& step, StepResults results, double now);
  /// Ends all sequences of the oldest step in flight, because the device could not run it.
  std::vector<Event> fail(const Step& step, const std::string& error, double now);
  /// Ends the youngest sequence of that step, because the device lacks memory for all of them; the others are
  /// recomputed.
  std::vector<Event> refuse(const Step& step, const std::string& error, double now);
  /// The events since the last call, for hosts that wait without a step: cancellations, deadlines.
  std::vector<Event> take_events() { return std::exchange(events_, {}); }

  /// The earliest deadline of any sequence; infinity if none has one.
  double next_deadline() const {
    return deadlines_.empty() ? std::numeric_limits<double>::infinity() : deadlines_.begin()->first;
  }

  bool has_work() const { return !sequences_.empty(); }
  std::size_t in_flight() const { return in_flight_.size(); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  /// A sequence that has not ended, or null.
  const Sequence* find(SequenceId id) const;
  std::int64_t context() const { return context_; }
  const SchedulerStatistics& statistics() const { return statistics_; }
  const PagePool& pool() const { return pool_; }
  /// The pool of layers with a window.
  const PagePool& windowed_pool(std::size_t group) const { return windowed_.at(group)->pool; }
  /// The number of such blocks before its end that a text needs to continue.
  int reach(std::size_t group) const { return windowed_.at(group)->reach(); }
  const PrefixTree& prefixes() const { return tree_; }
  const StateSlots& slots() const { return slots_; }

  /// Blocks for a text that the host computes alongside the sequences, with room for this many tokens; none if the
  /// cache is full. Sequences may have to wait until they are given back. The scheduler must outlive them.
  std::optional<TextBlocks> reserve(std::int64_t positions);
  /// Forgets cached prefixes that no sequence uses.
  void clear_prefixes() { tree_.clear(); }
  /// The whole blocks that a running sequence has computed so far: length and blocks, to be read by the host before the
  /// next step. The tokens are the first `length` of the sequence's. Throws UsageError if it is not running, if its
  /// first blocks, or those that windows see from its end, were given back, or if the model has recurrent layers, whose
  /// states are kept only at the end of a prompt's whole blocks.
  SavedTable save(SequenceId id) const;
  /// The same for the cache of these tokens, whichever sequence computed it, with the states of recurrent layers.
  SavedTable save(const std::string& name_space, std::span<const std::int32_t> tokens);
  /// Puts saved blocks into the prefix tree, where sequences that begin with these tokens find them. Returns what the
  /// host must fill before the next step: nothing that is present already, or that the cache has no room for. With
  /// recurrent states or groups of layers with windows, texts can continue only from the end, so that it is all or
  /// nothing.
  Restored restore(const std::string& name_space, std::span<const std::int32_t> tokens, const SavedTable& saved);

 private:
  struct Planned {
    Row row;
    std::vector<std::int32_t> draft = {};
    std::int32_t carried = -1;
    std::uint32_t draw = 0;
    std::uint32_t epoch = 0;
  };
  struct InFlight {
    std::int64_t number;
    std::vector<Planned> rows;
    int outputs;
  };
  using Plan = std::vector<Planned>;

  SequenceId insert(std::vector<std::int32_t> prompt, SequenceOptions options, double now);
  void check(std::span<const std::int32_t> prompt, const SequenceOptions& options) const;
  void check_tokens(std::span<const std::int32_t> tokens) const;
  Sequence& at(SequenceId id);

  void expire(double now);
  void finish(Sequence& sequence, FinishReason reason, double now, Event event = {});

  // Admission
  void admit();
  bool waits_for_parent(const Sequence& sequence) const;
  bool try_admit(Sequence& sequence);
  std::int32_t enter_cache(Sequence& sequence);
  std::pair<std::int64_t, std::int32_t> shared_with(const CachePlace& parent, std::int64_t most) const;
  CachePlace new_place() { return {pool_, windowed_}; }
  int promised_blocks() const;
  int promised_windowed(std::size_t group) const;
  int needed_windowed(const CachePlace& place, std::size_t group, std::int64_t length) const;
  bool has_room_for(const CachePlace& place, std::int64_t length) const;
  std::int64_t path_length(const CachePlace& place) const;
  std::optional<StateSlot> take_slot();

  // Room
  bool release_before_windows();
  void release_passed(Sequence& sequence);
  bool make_room(PageTable& table, std::int64_t more);
  bool make_windowed_room(PageTable& table, std::size_t group, std::int64_t more);
  bool grow(Sequence& sequence, std::int64_t length);
  bool grow_without_preemption(Sequence& sequence, std::int64_t length);
  bool preempt_younger(const Sequence& sequence);
  void preempt(Sequence& sequence);

  // Saving and restoring
  std::int32_t holder_of(std::int32_t slot) const;
  std::optional<StateSlot> take_slot_to_fill();
  void check_saved(std::span<const std::int32_t> tokens, const SavedTable& saved) const;
  std::vector<PageTable> seen_from_end(const PrefixTree::Path& path, const SavedTable& saved, std::int64_t more);
  bool has_room_for_rest(std::int64_t missing, const std::vector<PageTable>& ends, std::int64_t length) const;
  void append_restored(PrefixTree::Path& path, std::span<const std::int32_t> tokens, Block block,
                       std::vector<PageTable>& ends, const SavedTable& saved, Restored& restored);

  // Planning
  bool can_decode(const Sequence& sequence) const;
  bool gathers_batch() const;
  void plan_decode(Plan& plan);
  void plan_prefill(Plan& plan, int width);
  bool fits_cells(const Plan& plan, std::int64_t count, int width) const;
  std::vector<std::int32_t> draft_of(Sequence& sequence);
  std::int64_t prefill_count(const Sequence& sequence, std::int64_t most) const;
  void set_mask(Step& step, double now);
  std::int64_t snapshot_position(const Sequence& sequence) const;
  void issue(Plan& plan, Sequence& sequence, std::int64_t count, int width, const std::vector<std::int32_t>& draft);
  void snapshot_prefix(Sequence& sequence);
  Step build(Plan& plan, double now);

  // Completion
  const InFlight& oldest_in_flight(const Step& step) const;
  InFlight take_in_flight();
  void withdraw(const Planned& planned);
  void forget_cache();
  static void check_results(const InFlight& issued, const StepResults& results);
  void settle(const Planned& planned, std::size_t row, int outputs, StepResults& results, double now);
  static std::int32_t token_of(Sequence& sequence, const Planned& planned, std::size_t row, int output, int outputs,
                               StepResults& results);
  static TokenLogprobs logprobs_of(const Sequence& sequence, const Planned& planned, std::size_t row, int output,
                                   int outputs, const StepResults& results);
  void count_drafts(Sequence& sequence, int drafted, int accepted);
  void keep_accepted(Sequence& sequence, const Planned& planned, int accepted);
  void publish(Sequence& sequence);

  SchedulerOptions options_;
  std::int64_t context_;
  // In this order, because sequences hold blocks and slots, and paths refer to the tree.
  PagePool pool_;
  WindowedPools windowed_;
  StateSlots slots_;
  PrefixTree tree_;
  std::unique_ptr<const StepSizes> sizes_;
  std::map<SequenceId, Sequence> sequences_;
  std::set<SequenceId> running_, waiting_;  // by age
  std::set<std::pair<double, SequenceId>> deadlines_;
  std::deque<InFlight> in_flight_;
  std::vector<Event> events_;
  std::vector<BlockCopy> copies_;                        // to be made before the next step
  std::vector<std::vector<BlockCopy>> windowed_copies_;  // likewise, by group
  std::vector<SlotCopy> state_copies_;                   // to be made before the next step
  std::vector<SlotCopy> later_state_copies_;             // to be made before the one after it
  std::int64_t step_number_ = 0;
  SequenceId next_id_ = 1;
  SequenceId last_prefilled_ = 0;
  bool prefill_is_due_ = true;       // after a decode step, if they take turns
  bool prefill_is_blocked_ = false;  // a prompt found no room beside those planned before it
  SchedulerStatistics statistics_;
};

}  // namespace jerboa::serving
