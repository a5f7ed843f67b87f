#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>
#include <jerboa/language/text_encoder.h>

#include "server/api_error.h"
#include "server/chat_prompt.h"
#include "server/server_tools.h"

namespace jerboa::server {

/// Of a clock that only goes forward.
double steady_seconds();

struct ServedModel {
  std::string name;
  std::filesystem::path path;
  int drafts = 0;                          ///< the most tokens that are drafted per step
  std::filesystem::path draft_model = {};  ///< by default drafts are looked up in the text so far
};

/// A model that is loaded, with what the server knows about it: a decoder, which generates text, or an encoder, which
/// only embeds it.
class LoadedModel {
 public:
  /// `reserve` is called with the size of what is allocated, before it is; it throws if there is no room.
  using Reserve = std::function<void(std::int64_t bytes)>;
  LoadedModel(ServedModel served, LanguageModelOptions options, Reserve reserve);

  const std::string& name() const { return served_.name; }
  bool generates() const { return language_.has_value(); }
  /// Throws ApiError if the model does not generate text.
  LanguageModel& language();
  const LanguageModel& language() const;
  /// For embeddings. That of a decoder is loaded when it is first asked for, with weights of its own.
  TextEncoder& encoder();
  /// Weights, caches and recurrent states, those of the draft model included.
  std::int64_t bytes() const { return bytes_; }
  int context() const { return language_ ? language_->context() : encoder_->context(); }

  const ChatFormat& chat_format() const { return chat_format_; }
  int drafts() const { return served_.drafts; }

  /// The tokens of a text. Throws ApiError if they exceed the context, without tokenising all of what obviously does.
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

/// A request that needs a model. All calls come from the model's thread, between steps; one that was not started may
/// fail on another.
class Task {
 public:
  /// With the time for its answer, which begins now.
  explicit Task(double seconds) : deadline_(steady_seconds() + seconds) {}
  virtual ~Task() = default;
  double seconds_left() const { return deadline_ - steady_seconds(); }
  /// Throws if the request cannot be done; fail() is called then.
  virtual void start(LoadedModel& model) = 0;
  /// Passes on what was computed; returns whether everything is.
  virtual bool pump() = 0;
  /// It waits for something other than the model.
  virtual bool is_waiting() const { return false; }
  /// Calls of tools that have not ended, for whoever ends the task to wait for: cancelling them takes time.
  virtual std::unique_ptr<RunningCalls> take_calls() { return nullptr; }
  virtual void fail(const ApiError& error) = 0;
  /// Nobody waits for it any more.
  virtual bool is_abandoned() const = 0;

 private:
  double deadline_;
};

/// No answer was ready within the time that a request may take.
ApiError late(double seconds);

}  // namespace jerboa::server
