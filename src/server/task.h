#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jerboa/language/language_model.h>
#include <jerboa/language/text_encoder.h>

#include "server/api_error.h"
#include "server/chat_prompt.h"

namespace jerboa::server {

struct ServedModel {
  std::string name;
  std::filesystem::path path;
};

/// A model that is loaded, with what the server knows about it: a decoder, which generates text, or an encoder, which
/// only embeds it.
class LoadedModel {
 public:
  LoadedModel(ServedModel served, LanguageModelOptions options);

  const std::string& name() const { return served_.name; }
  bool generates() const { return language_.has_value(); }
  /// Throws ApiError if the model does not generate text.
  LanguageModel& language();
  const LanguageModel& language() const;
  /// For embeddings. That of a decoder is loaded when it is first asked for, with weights of its own.
  TextEncoder& encoder();
  int context() const { return language_ ? language_->context() : encoder_->context(); }

  const ChatFormat& chat_format() const { return chat_format_; }

  /// The tokens of a text. Throws ApiError if they exceed the context, without tokenizing what obviously does.
  std::vector<std::int32_t> encode(const std::string& text, bool add_special) const;
  void check_length(std::size_t tokens) const;

 private:
  ServedModel served_;
  LanguageModelOptions options_;
  std::optional<LanguageModel> language_;
  std::optional<TextEncoder> encoder_;
  ChatFormat chat_format_;
  std::size_t longest_token_ = 1;  // in bytes
};

/// A request that needs a model. All calls come from the model's thread, between steps.
class Task {
 public:
  virtual ~Task() = default;
  /// Throws if the request cannot be done; fail() is called then.
  virtual void start(LoadedModel& model) = 0;
  /// Passes on what was computed; returns whether everything is.
  virtual bool pump() = 0;
  virtual void fail(const ApiError& error) = 0;
  /// Nobody waits for it any more.
  virtual bool is_abandoned() const = 0;
};

}  // namespace jerboa::server
