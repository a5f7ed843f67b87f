#include "cli/thoughts.h"

#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

// Some templates take an effort instead of a switch; "low" is the least in those without "none".
std::string_view least_effort(std::string_view template_source) {
  const auto has = [&](std::string_view word) { return template_source.find(word) != std::string_view::npos; };
  return has("'none'") || has("\"none\"") ? "none" : "low";
}

}  // namespace

Thinking thinking_from_name(std::string_view name) {
  return name == "hide" ? Thinking::hide : name == "off" ? Thinking::off : Thinking::show;
}

JsonValue template_variables(Thinking thinking, std::string_view template_source) {
  if (thinking != Thinking::off) return JsonValue::parse(R"({"enable_thinking": true, "thinking": true})");
  std::string variables = R"({"enable_thinking": false, "thinking": false)";
  if (template_source.find("reasoning_effort") != std::string_view::npos)
    variables += R"(, "reasoning_effort": ")" + std::string(least_effort(template_source)) + '"';
  return JsonValue::parse(variables + "}");
}

std::string ThoughtView::show(std::string_view text, bool is_thought) {
  if (text.empty() || (is_thought && thinking_ == Thinking::hide)) return "";
  std::string out = is_thought == is_inside_ ? "" : cross(is_thought);
  ends_line_ = text.ends_with('\n');
  return out + (is_thought ? dim(text, colours_) : std::string(text));
}

std::string ThoughtView::cross(bool into) {
  is_inside_ = into;
  if (into) return colours_ ? "" : "<think>\n";
  const std::string end = ends_line_ ? "" : "\n";
  return end + (colours_ ? "\n" : "</think>\n\n");
}

}  // namespace jerboa::cli
