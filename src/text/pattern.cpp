#include "text/pattern.h"

#include <jerboa/base/error.h>

namespace jerboa {

Pattern Pattern::parse(const JsonView& json) {
  if (json.is_string()) return Pattern(json.string());
  if (json.has("String")) return Pattern(json.string("String"));
  if (!json.has("Regex")) json.fail(R"(expected {"String": …} or {"Regex": …})");
  try {
    return Pattern(Regex(json.string("Regex")));
  } catch (const UsageError& error) {
    json.fail(error.what());
  }
}

std::vector<Range> Pattern::find_all(std::string_view text) const {
  if (const auto* regex = std::get_if<Regex>(&what_)) return regex->find_all(text);
  const auto& literal = std::get<std::string>(what_);
  std::vector<Range> matches;
  if (literal.empty()) return matches;
  for (std::size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, at + literal.size()))
    matches.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + literal.size())});
  return matches;
}

std::string_view Pattern::regex() const {
  const auto* regex = std::get_if<Regex>(&what_);
  return regex ? std::string_view(regex->pattern()) : std::string_view();
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t copied = 0;
  if (!from.empty()) {
    for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, copied)) {
      out += text.substr(copied, at - copied);
      out += to;
      copied = at + from.size();
    }
  }
  out += text.substr(copied);
  return out;
}

}  // namespace jerboa
