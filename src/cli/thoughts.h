#pragma once

#include <string>
#include <string_view>

#include <jerboa/base/json.h>

namespace jerboa::cli {

/// What to do with the thoughts of a thinking model, between <think> and </think>.
enum class Thinking {
  show,  ///< dimmed
  hide,  ///< it thinks, but only the answer is shown
  off    ///< the template tells it not to think
};
Thinking thinking_from_name(std::string_view name);
/// The variables that templates read for it.
JsonValue template_variables(Thinking thinking);

/// Prepares an answer for display as it comes.
class ThoughtFilter {
 public:
  /// `begins_inside`: the prompt ends with <think>, as some templates do. Without colours, shown thoughts keep their
  /// tags.
  ThoughtFilter(Thinking thinking, bool colours, bool begins_inside);

  /// What to print after another piece of the answer.
  std::string push(std::string_view piece);
  /// The rest.
  std::string finish();

 private:
  std::string show(std::string_view text);
  std::string cross(bool into);

  Thinking thinking_;
  bool colours_, is_inside_;
  bool skips_blanks_ = false;  // after a hidden thought
  std::string held_;           // may be the beginning of a tag
};

/// Whether a rendered prompt leaves the model inside a thought.
bool ends_inside_thought(std::string_view prompt);

}  // namespace jerboa::cli
