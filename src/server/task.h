#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>
#include <jerboa/language/text_encoder.h>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/server_tools.h"

namespace jerboa::server {

using detail::steady_seconds;

struct ServedModel {
  std::string name;
  std::filesystem::path path;
  int drafts = 0;                          ///< limit of drafted tokens per step
  std::filesystem::path draft_model = {};  ///< "": drafts are looked up in the text so far
};

/// A loaded model: a decoder, which generates text, or an encoder, which only embeds it.
class LoadedModel {
 public:
  /// Called with the number of bytes before they are allocated; throws if there is no room.
  using Reserve = std::function<void(std::int64_t bytes)>;
  LoadedModel(ServedModel served, LanguageModelOptions options, Reserve reserve);

  const std::string& name() const { return served_.name; }
  bool generates() const { return language_.has_value(); }
  /// Throws ApiError if the model does not generate text.
  LanguageModel& language();
  const LanguageModel& language() const;
  /// The encoder for embeddings. A decoder's is loaded on first use, with weights of its own.
  TextEncoder& encoder();
  /// Weights, caches and recurrent states, including those of the draft model.
  std::int64_t bytes() const { return bytes_; }
  int context() const { return language_ ? language_->context() : encoder_->context(); }

  const ChatFormat& chat_format() const { return chat_format_; }
  int drafts() const { return served_.drafts; }

  /// The tokens of a text. Throws ApiError if they exceed the context; a text that is far too long is not even
  /// tokenised.
  std::vector<std::int32_t> encode(const std::string& text, bool add_special) const;
  void check_length(std::size_t tokens) const;

 private:
  void take(std::int64_t bytes);

  ServedModel served_;
  LanguageModelOptions options_;
  Reserve reserve_;
  std::optional<LanguageModel> language_;
  std::optional<TextEncoder> encoder_;
  ChatFormat chat_format_;
  std::int64_t bytes_ = 0;
  bool has_room_for_encoder_ = false;
};

/// A request that needs a model. All calls come from the model's thread, between steps; only fail() of a task that was
/// not started may come from another.
class Task {
 public:
  /// The time limit of the answer starts now.
  explicit Task(double seconds) : deadline_(steady_seconds() + seconds) {}
  virtual ~Task() = default;
  double seconds_left() const { return deadline_ - steady_seconds(); }
  /// Throws if the request cannot be served; fail() is called then.
  virtual void start(LoadedModel& model) = 0;
  /// Passes on new output; returns true once the answer is complete.
  virtual bool pump() = 0;
  /// Whether it waits for something other than the model.
  virtual bool is_waiting() const { return false; }
  /// Tool calls that have not ended. Whoever ends the task must wait for them, because cancelling takes time.
  virtual std::unique_ptr<RunningCalls> take_calls() { return nullptr; }
  virtual void fail(const ApiError& error) = 0;
  /// Whether nobody waits for the answer any more.
  virtual bool is_abandoned() const = 0;

 private:
  double deadline_;
};

/// The error of a request without an answer within its time limit.
ApiError late(double seconds);

}  // namespace jerboa::server
