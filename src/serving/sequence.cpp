#include <algorithm>
#include <utility>

#include <jerboa/serving/sequence.h>

namespace jerboa::serving {

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::end: return "end";
    case FinishReason::length: return "length";
    case FinishReason::stop: return "stop";
    case FinishReason::context: return "context";
    case FinishReason::deadline: return "deadline";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::failed: return "failed";
  }
  return {};
}

Sequence::Sequence(SequenceId id, std::vector<std::int32_t> prompt, SequenceOptions options, bool samples_on_host,
                   double now, CachePlace place)
    : place(std::move(place)),
      id_(id),
      tokens_(std::move(prompt)),
      options_(std::move(options)),
      stop_(options_.stop, options_.end_tokens),
      draft_length_(options_.drafts) {
  std::unique_ptr<Constraint> constraint = options_.constraint ? options_.constraint() : nullptr;
  if (samples_on_host) {
    sampler_ = options_.sampler ? options_.sampler() : std::make_unique<Sampler>(options_.sampling);
    if (constraint) sampler_->constrain(std::move(constraint));
    sampler_->observe(tokens_);
    if (options_.logprobs) {
      distribution_ = std::make_unique<TokenDistribution>();
      sampler_->add_processor(
          [place = distribution_.get(), count = *options_.logprobs](std::span<float> logits, std::span<const int>) {
            *place = distribution_of(logits, count);
          });
    }
  } else {
    constraint_ = std::move(constraint);
    if (constraint_) options_.drafts = 0;  // a mask is valid for one token
    if (penalises(options_.sampling)) seen_.emplace(tokens_, options_.sampling.penalty_window);
  }
  if (options_.text) text_ = options_.text(tokens_);
  statistics_.arrived = now;
  statistics_.prompt_tokens = length();
}

SequenceState Sequence::state() const {
  if (!running) return SequenceState::waiting;
  return length() + pending - place.computed > 1 ? SequenceState::prefilling : SequenceState::decoding;
}

std::string Sequence::text_of(std::int32_t token) { return text_ ? stop_.feed(text_->push(token)) : std::string(); }

// If nothing may follow, there is no need to draw an end token.
bool Sequence::nothing_may_follow() const {
  if (constraint() == nullptr || !constraint()->complete()) return false;
  TokenMask others = constraint()->allowed();
  for (const std::int32_t token : options_.end_tokens)
    if (static_cast<std::size_t>(token) / 64 < others.words().size())
      others.set(static_cast<std::size_t>(token), false);
  return std::all_of(others.words().begin(), others.words().end(), [](std::uint64_t word) { return word == 0; });
}

Sequence::Outcome Sequence::accept(std::int32_t token, std::int64_t context, double now) {
  if (!statistics_.first_token) statistics_.first_token = now;
  if (stop_.is_stop_token(token)) return {.kept = false, .finished = FinishReason::end};
  if (constraint_) constraint_->accept(token);
  tokens_.push_back(token);
  if (seen_) seen_->push(token);
  suggestion_.reset();
  ++statistics_.tokens;
  Outcome out{.text = text_of(token)};
  if (stop_.stopped())
    out.finished = FinishReason::stop;
  else if (nothing_may_follow())
    out.finished = FinishReason::end;
  else if (generated() >= options_.max_tokens)
    out.finished = FinishReason::length;
  else if (length() > context)
    out.finished = FinishReason::context;
  return out;
}

std::int32_t Sequence::sample(std::span<float> logits) { return sampled_ = sampler_->sample(logits, tokens_left()); }

TokenLogprobs Sequence::sampled_logprobs() const {
  return {distribution_->logprob(sampled_), distribution_->likeliest};
}

const TokenMask& Sequence::mask() { return constraint_->allowed(tokens_left()); }

std::string Sequence::finish_text() {
  if (!text_ || stop_.stopped()) return {};
  std::string text = stop_.feed(text_->finish());
  return text + stop_.finish();
}

std::vector<std::int32_t> Sequence::propose(std::int64_t most) {
  if (options_.draft_source == DraftSource::host) {
    std::vector<std::int32_t> draft = std::exchange(suggestion_, std::nullopt).value_or(std::vector<std::int32_t>());
    const std::int64_t count = std::clamp<std::int64_t>(most, 0, options_.drafts);
    if (std::ssize(draft) > count) draft.resize(static_cast<std::size_t>(count));
    return draft;
  }
  const auto count = static_cast<int>(std::min<std::int64_t>(draft_length_, most));
  return count > 0 ? lookup_.propose(tokens_, count) : std::vector<std::int32_t>();
}

bool Sequence::awaits_draft() const {
  return options_.drafts > 0 && options_.draft_source == DraftSource::host && state() == SequenceState::decoding &&
         pending == 0 && !suggestion_;
}

void Sequence::count_drafts(int drafted, int accepted) {
  statistics_.drafted += drafted;
  statistics_.accepted += accepted;
  if (drafted == 0) return;
  draft_length_ = accepted == drafted ? std::min(2 * draft_length_ + 1, options_.drafts) : std::max(1, accepted);
}

}  // namespace jerboa::serving
