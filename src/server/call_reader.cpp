#include "server/call_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace jerboa::server {
namespace {

constexpr std::size_t none = std::string::npos;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// The content of a JSON string literal, or "" if it is malformed.
std::string unquoted(std::string_view quoted) {
  const nlohmann::json value = nlohmann::json::parse(quoted, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace

std::size_t ObjectReader::feed(std::string_view text, OutputEvents& out) {
  std::size_t taken = 0;
  while (taken < text.size() && !is_done_ && !has_failed_) {
    text_ += text[taken++];
    step(text_.back());
  }
  send(out);
  return taken;
}

// Sends the name before the arguments, wherever they are in the object.
void ObjectReader::send(OutputEvents& out) {
  if (name_.empty() || has_failed_) return;
  if (!has_begun_call_) out.push_back({OutputEvent::Kind::call, name_});
  has_begun_call_ = true;
  if (!quoted_arguments_.empty()) out.push_back({OutputEvent::Kind::arguments, std::exchange(quoted_arguments_, {})});
  if (arguments_begin_ != none) {
    const std::size_t end = std::min(arguments_end_, text_.size());
    if (end > sent_) out.push_back({OutputEvent::Kind::arguments, text_.substr(sent_, end - sent_)});
    sent_ = end;
  }
  if (is_done_ && !has_arguments_) out.push_back({OutputEvent::Kind::arguments, "{}"});
}

void ObjectReader::step(char c) {
  const std::size_t at = text_.size() - 1;
  if (in_string_) {
    if (is_escaped_)
      is_escaped_ = false;
    else if (c == '\\')
      is_escaped_ = true;
    else if (c == '"')
      end_string();
    return;
  }
  if (is_space(c)) return;
  if (depth_ == 0) {
    has_failed_ = c != '{';
    depth_ = 1;
    return;
  }
  switch (c) {
    case '"':
      in_string_ = true;
      token_begin_ = at;
      begin_value();
      break;
    case '{':
    case '[':
      begin_value();
      ++depth_;
      break;
    case '}':
    case ']':
      if (--depth_ == 1) end_value(at + 1);
      if (depth_ > 0) break;
      end_value(at);
      is_done_ = true;
      has_failed_ = name_.empty();
      break;
    case ':':
      if (depth_ == 1) {
        has_failed_ = expecting_ != Expecting::colon;
        expecting_ = Expecting::value;
      }
      break;
    case ',':
      if (depth_ == 1) end_value(at);
      break;
    default:
      if (depth_ == 1 && expecting_ != Expecting::value) has_failed_ = true;
      begin_value();
  }
}

void ObjectReader::begin_value() {
  if (depth_ != 1 || expecting_ != Expecting::value || value_begin_ != none) return;
  value_begin_ = text_.size() - 1;
  if (is_arguments_key() && (text_.back() == '{' || text_.back() == '[')) arguments_begin_ = sent_ = value_begin_;
}

void ObjectReader::end_string() {
  in_string_ = false;
  if (depth_ != 1) return;
  if (expecting_ == Expecting::key) {
    key_ = unquoted(std::string_view(text_).substr(token_begin_));
    expecting_ = Expecting::colon;
  } else if (expecting_ == Expecting::value) {
    end_value(text_.size());
  }
}

// Called wherever a value may end; does nothing if none does.
void ObjectReader::end_value(std::size_t end) {
  if (expecting_ == Expecting::value && value_begin_ != none) {
    const std::string_view value = std::string_view(text_).substr(value_begin_, end - value_begin_);
    if (key_ == "name") {
      name_ = unquoted(value);
      has_failed_ = name_.empty();
    } else if (is_arguments_key()) {
      has_arguments_ = arguments_begin_ != none || value.front() == '"';
      arguments_end_ = end;
      if (arguments_begin_ == none && has_arguments_) quoted_arguments_ = unquoted(value);
    }
    value_begin_ = none;
    expecting_ = Expecting::key;
  } else if (expecting_ != Expecting::key) {
    has_failed_ = true;
  }
}

}  // namespace jerboa::server
