#pragma once

#include <string>
#include <string_view>

#include <jerboa/base/json.h>

namespace jerboa::cli {

/// How the thoughts of a thinking model are treated.
enum class Thinking {
  show,  ///< dimmed
  hide,  ///< the model thinks, but only the answer is shown
  off    ///< the template tells the model not to think, or to think as little as possible
};
Thinking thinking_from_name(std::string_view name);
/// The template variables for this setting, as far as the template has them.
JsonValue template_variables(Thinking thinking, std::string_view template_source);

/// Formats an answer for display as it is generated.
class ThoughtView {
 public:
  /// Without colours, thoughts are enclosed in <think> and </think>.
  ThoughtView(Thinking thinking, bool colours) : thinking_(thinking), colours_(colours) {}

  /// The output for another piece of thoughts or of the answer.
  std::string show(std::string_view text, bool is_thought);
  /// The output at the end.
  std::string finish() { return is_inside_ ? cross(false) : ""; }

 private:
  std::string cross(bool into);

  Thinking thinking_;
  bool colours_, is_inside_ = false, ends_line_ = false;
};

}  // namespace jerboa::cli
