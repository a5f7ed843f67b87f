#pragma once

#include <memory>
#include <string>

#include <jerboa/language/language_model.h>

#include "server/api_error.h"
#include "server/tool_format.h"

namespace jerboa::server {

/// A model that is loaded, with what the server knows about it.
struct LoadedModel {
  LoadedModel(std::string served_name, LanguageModel loaded);

  std::string name;
  LanguageModel language;
  const ToolFormat* tool_format;
  bool template_shows_tools = false;  ///< the template describes tools itself
  bool names_follow_marks = false;    ///< a call is written [TOOL_CALLS]NAME[ARGS]{…}
  std::size_t longest_token = 1;      ///< in bytes

  /// The tokens of a text. Throws ApiError if they exceed the context, without tokenizing what obviously does.
  std::vector<std::int32_t> encode(const std::string& text, bool add_special) const;
  void check_length(std::size_t tokens) const;
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
