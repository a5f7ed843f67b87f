#include "cli/thoughts.h"

#include <algorithm>

namespace jerboa::cli {
namespace {

constexpr std::string_view opening = "<think>", closing = "</think>";

// How many characters at the end of `text` may be the beginning of `tag`.
std::size_t begun(std::string_view text, std::string_view tag) {
  for (std::size_t length = std::min(text.size(), tag.size() - 1); length > 0; --length)
    if (text.ends_with(tag.substr(0, length))) return length;
  return 0;
}

}  // namespace

Thinking thinking_from_name(std::string_view name) {
  return name == "hide" ? Thinking::hide : name == "off" ? Thinking::off : Thinking::show;
}

JsonValue template_variables(Thinking thinking) {
  return thinking == Thinking::off ? JsonValue::parse(R"({"enable_thinking": false, "thinking": false})")
                                   : JsonValue::parse(R"({"enable_thinking": true, "thinking": true})");
}

bool ends_inside_thought(std::string_view prompt) {
  const auto end = prompt.find_last_not_of(" \n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(opening);
}

ThoughtFilter::ThoughtFilter(Thinking thinking, bool colours, bool begins_inside)
    : thinking_(thinking), colours_(colours), is_inside_(begins_inside) {}

std::string ThoughtFilter::show(std::string_view text) {
  if (is_inside_ && thinking_ == Thinking::hide) return "";
  if (is_inside_) return colours_ && !text.empty() ? "\033[2m" + std::string(text) + "\033[0m" : std::string(text);
  if (skips_blanks_) {
    const auto begin = text.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return "";
    text.remove_prefix(begin);
    skips_blanks_ = false;
  }
  return std::string(text);
}

// The tag itself is shown only where nothing else marks the thought.
std::string ThoughtFilter::cross(bool into) {
  is_inside_ = into;
  if (!into && thinking_ == Thinking::hide) skips_blanks_ = true;
  if (thinking_ == Thinking::hide || colours_) return "";
  return std::string(into ? opening : closing);
}

std::string ThoughtFilter::push(std::string_view piece) {
  held_ += piece;
  std::string out;
  for (;;) {
    const std::string_view tag = is_inside_ ? closing : opening;
    const auto at = held_.find(tag);
    if (at == std::string::npos) break;
    out += show(std::string_view(held_).substr(0, at));
    out += cross(!is_inside_);
    held_.erase(0, at + tag.size());
  }
  const std::size_t kept = begun(held_, is_inside_ ? closing : opening);
  out += show(std::string_view(held_).substr(0, held_.size() - kept));
  held_.erase(0, held_.size() - kept);
  return out;
}

std::string ThoughtFilter::finish() {
  std::string out = show(held_);
  held_.clear();
  return out;
}

}  // namespace jerboa::cli
