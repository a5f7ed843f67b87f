#include "server/element_reader.h"

#include <algorithm>

#include "server/marks.h"

namespace jerboa::server {
namespace {

using Kind = OutputEvent::Kind;

constexpr std::string_view function_close = "</function>";
constexpr std::string_view parameter_open = "<parameter=", parameter_close = "</parameter>";

std::string trimmed(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(white_space), text.size()));
  text.erase(text.find_last_not_of(white_space) + 1);
  return text;
}

}  // namespace

std::size_t ElementReader::feed(std::string_view text, OutputEvents& out) {
  pending_ += text;
  text_ += text;
  while (!is_done_ && !has_failed_ && step(out)) {
  }
  if (!is_done_) return text.size();
  text_.resize(text_.size() - pending_.size());
  return text.size() - pending_.size();
}

bool ElementReader::step(OutputEvents& out) {
  switch (state_) {
    case State::function: return read_function(out);
    case State::parameters: return read_tag(out);
    case State::value: return read_value(out);
  }
  return false;
}

bool ElementReader::read_function(OutputEvents& out) {
  skip_white_space(pending_);
  if (may_become(pending_, beginning)) return false;
  has_failed_ = !starts_with(pending_, beginning);
  const std::size_t end = pending_.find('>');
  if (has_failed_ || end == std::string::npos) return false;
  const std::string name = trimmed(pending_.substr(beginning.size(), end - beginning.size()));
  has_failed_ = name.empty();
  if (has_failed_) return false;
  pending_.erase(0, end + 1);
  const auto tool = std::find_if(tools_.begin(), tools_.end(), [&](const Tool& one) { return one.name == name; });
  if (tool != tools_.end()) parameters_ = tool->parameters;
  out.push_back({Kind::call, name});
  has_begun_call_ = true;
  state_ = State::parameters;
  return true;
}

// Text between parameters is ignored.
bool ElementReader::read_tag(OutputEvents& out) {
  pending_.erase(0, std::min(pending_.find('<'), pending_.size()));
  if (starts_with(pending_, function_close)) {
    out.push_back({Kind::arguments, has_values_ ? "}" : "{}"});
    pending_.erase(0, function_close.size());
    is_done_ = has_arguments_ = true;
    return false;
  }
  if (starts_with(pending_, parameter_open)) {
    const std::size_t end = pending_.find('>');
    if (end == std::string::npos) return false;
    const std::string key = trimmed(pending_.substr(parameter_open.size(), end - parameter_open.size()));
    pending_.erase(0, end + 1);
    begin_value(key, out);
    return true;
  }
  if (pending_.empty() || may_become(pending_, function_close) || may_become(pending_, parameter_open)) return false;
  pending_.erase(0, 1);
  return true;
}

void ElementReader::begin_value(const std::string& key, OutputEvents& out) {
  const bool is_known = parameters_.contains("properties") && parameters_["properties"].contains(key);
  types_ = is_known ? value_types(parameters_["properties"][key], parameters_) : ValueTypes();
  is_text_ = types_ == ValueTypes{"string"};
  out.push_back({Kind::arguments, (has_values_ ? ", \"" : "{\"") + escaped_part(key) + (is_text_ ? "\": \"" : "\": ")});
  has_values_ = is_first_line_ = true;
  state_ = State::value;
}

bool ElementReader::read_value(OutputEvents& out) {
  if (is_first_line_ && pending_.empty()) return false;
  if (std::exchange(is_first_line_, false) && pending_.front() == '\n') pending_.erase(0, 1);
  const std::size_t end = pending_.find(parameter_close);
  const bool is_complete = end != std::string::npos;
  if (!is_complete && !is_text_) return false;
  std::size_t shown = is_complete ? end : pending_.size() - held_length(pending_, parameter_close);
  std::string text = pending_.substr(0, shown);
  if (text.ends_with('\n')) text.pop_back();  // the one before the closing tag, unless more text follows
  pending_.erase(0, is_complete ? end + parameter_close.size() : text.size());
  std::string written = is_text_ ? escaped_part(text) : value_json(trimmed(text), types_);
  if (is_complete && is_text_) written += '"';
  if (!written.empty()) out.push_back({Kind::arguments, std::move(written)});
  if (is_complete) state_ = State::parameters;
  return is_complete;
}

}  // namespace jerboa::server
