#pragma once

#include <string>
#include <string_view>

#include <jerboa/base/json.h>

namespace jerboa::cli {

/// What to do with the thoughts of a thinking model.
enum class Thinking {
  show,  ///< dimmed
  hide,  ///< it thinks, but only the answer is shown
  off    ///< the template tells it not to think, or to think as little as it can
};
Thinking thinking_from_name(std::string_view name);
/// The variables that templates read for it, as far as this one does.
JsonValue template_variables(Thinking thinking, std::string_view template_source);

/// Prepares an answer for display as it comes.
class ThoughtView {
 public:
  /// Without colours, shown thoughts are between <think> and </think>.
  ThoughtView(Thinking thinking, bool colours) : thinking_(thinking), colours_(colours) {}

  /// What to print for another piece of thoughts, or of the answer itself.
  std::string show(std::string_view text, bool is_thought);
  /// What to print at the end.
  std::string finish() { return is_inside_ ? cross(false) : ""; }

 private:
  std::string cross(bool into);

  Thinking thinking_;
  bool colours_, is_inside_ = false, ends_line_ = false;
};

}  // namespace jerboa::cli
