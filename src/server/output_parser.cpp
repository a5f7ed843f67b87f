#include "server/output_parser.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/element_reader.h"
#include "server/marks.h"

namespace jerboa::server {
namespace {

using Kind = OutputEvent::Kind;

constexpr std::string_view think_open = "<think>", think_close = "</think>";

void emit(OutputEvents& out, Kind kind, std::string text) {
  if (text.empty() && kind != Kind::call) return;
  if (!out.empty() && out.back().kind == kind && kind != Kind::call)
    out.back().text += text;
  else
    out.push_back({kind, std::move(text)});
}

// Parses thoughts between <think> and </think>, text, and calls between marks.
class MarkedParser final : public OutputParser {
 public:
  MarkedParser(const ToolFormat& format, const OutputParserOptions& options)
      : format_(format),
        has_tools_(options.has_tools),
        tools_(options.tools),
        state_(options.is_in_thoughts ? State::thoughts : State::beginning) {}
  bool is_in_thoughts() const override { return state_ == State::thoughts; }

 private:
  enum class State : std::uint8_t {
    beginning,
    thoughts,
    after_thoughts,
    text,
    after_call,
    opened,
    list,
    call,
    closing
  };

  // Each returns false if it needs more of the answer.
  void parse(bool is_end, OutputEvents& out) override {
    while (step(is_end, out)) {
    }
    if (!is_end) return;
    if (reader_ && !reader_->has_begun_call()) emit(out, Kind::content, mark_ + reader_->text());
    if (state_ == State::opened || state_ == State::list) emit(out, Kind::content, mark_);
    reader_.reset();
    if (state_ != State::call && state_ != State::closing && state_ != State::after_call)
      emit(out, state_ == State::thoughts ? Kind::reasoning : Kind::content, std::move(pending_));
    pending_.clear();
  }

  bool step(bool is_end, OutputEvents& out) {
    switch (state_) {
      case State::beginning: return begin(is_end);
      case State::thoughts: return read_thoughts(is_end, out);
      case State::after_thoughts: return begin_text();
      case State::text: return read_text(is_end, out);
      case State::after_call: return after_call();
      case State::opened: return begin_call(out);
      case State::list: return next_in_list();
      case State::call: return read_call(out);
      case State::closing: return close_call(is_end);
    }
    return false;
  }

  bool begin(bool is_end) {
    const std::size_t first = pending_.find_first_not_of(white_space);
    if (first == std::string::npos) return false;
    const std::string_view rest = std::string_view(pending_).substr(first);
    if (!is_end && may_become(rest, think_open)) return false;
    if (starts_with(rest, think_open)) {
      pending_.erase(0, first + think_open.size());
      state_ = State::thoughts;
      is_first_thought_ = true;
      return true;
    }
    return enter_text(rest.front());
  }

  bool enter_text(char first) {
    state_ = State::text;
    if (!has_tools_ || format_.syntax != CallSyntax::bare || first != '{') return true;
    mark_.clear();
    start_reader();
    return true;
  }

  bool read_thoughts(bool is_end, OutputEvents& out) {
    if (is_first_thought_) skip_white_space(pending_);
    if (pending_.empty()) return false;
    is_first_thought_ = false;
    const std::size_t end = pending_.find(think_close);
    const std::size_t held = end != std::string::npos || is_end ? 0 : held_length(pending_, think_close);
    const std::size_t shown = end != std::string::npos ? end : pending_.size() - held;
    emit(out, Kind::reasoning, pending_.substr(0, shown));
    pending_.erase(0, shown);
    if (end == std::string::npos) return false;
    pending_.erase(0, think_close.size());
    state_ = State::after_thoughts;
    return true;
  }

  bool begin_text() {
    skip_white_space(pending_);
    return !pending_.empty() && enter_text(pending_.front());
  }

  bool read_text(bool is_end, OutputEvents& out) {
    if (pending_.empty()) return false;
    const bool expects_calls = has_tools_ && !format_.open.empty();
    std::size_t found = expects_calls ? pending_.find(format_.open) : std::string::npos;
    std::size_t held = expects_calls && !is_end ? held_length(pending_, format_.open) : 0;
    std::string_view mark = format_.open;
    if (expects_calls && format_.syntax == CallSyntax::elements) {  // models sometimes leave out the mark
      const std::size_t function = pending_.find(ElementReader::beginning);
      if (function < found) mark = {};
      found = std::min(found, function);
      if (!is_end) held = std::max(held, held_length(pending_, ElementReader::beginning));
    }
    const std::size_t shown = found != std::string::npos ? found : pending_.size() - held;
    std::string text = pending_.substr(0, shown);
    // White space before a call is not part of the text.
    if (expects_calls && !is_end) {
      const std::size_t last = text.find_last_not_of(white_space);
      const std::size_t kept = last == std::string::npos ? 0 : last + 1;
      if (found == std::string::npos && kept < text.size()) text.resize(kept);
      if (found != std::string::npos) text.resize(kept);
    }
    emit(out, Kind::content, text);
    pending_.erase(0, found != std::string::npos ? shown + mark.size() : text.size());
    if (found == std::string::npos) return false;
    mark_ = mark;
    state_ = State::opened;
    return true;
  }

  bool after_call() {
    const std::size_t first = pending_.find_first_not_of(format_.syntax == CallSyntax::bare ? " \n\r\t;" : white_space);
    if (first == std::string::npos) return false;
    pending_.erase(0, first);
    if (format_.syntax == CallSyntax::bare && pending_.front() == '{') return enter_text('{');
    state_ = State::text;
    return true;
  }

  void start_reader() {
    if (format_.syntax == CallSyntax::elements)
      reader_ = std::make_unique<ElementReader>(tools_);
    else
      reader_ = std::make_unique<ObjectReader>();
    state_ = State::call;
  }

  bool begin_call(OutputEvents& out) {
    const std::size_t first = pending_.find_first_not_of(white_space);
    if (first == std::string::npos) return false;
    if (format_.syntax != CallSyntax::list) {
      start_reader();
      return true;
    }
    if (pending_[first] == '[' && !starts_with(std::string_view(pending_).substr(first), "[ARGS]")) {
      mark_ += pending_.substr(0, first + 1);
      pending_.erase(0, first + 1);
      state_ = State::list;
      return true;
    }
    return begin_named_call(first, out);
  }

  // Parses NAME {…} or NAME [ARGS] {…} as the equivalent object.
  bool begin_named_call(std::size_t first, OutputEvents& out) {
    const std::size_t brace = pending_.find('{');
    if (brace == std::string::npos) return false;
    std::string name = pending_.substr(first, brace - first);
    name.resize(std::min(name.find("[ARGS]"), name.size()));
    name.resize(std::min(name.find("[CALL_ID]"), name.size()));
    name.erase(std::min(name.find_last_not_of(white_space) + 1, name.size()));
    if (name.empty()) {
      emit(out, Kind::content, std::exchange(mark_, {}));
      state_ = State::text;
      return true;
    }
    pending_.erase(0, brace);
    start_reader();
    is_value_alone_ = true;
    reader_->feed("{\"name\": " + Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ", \"arguments\": ",
                  out);
    return true;
  }

  bool next_in_list() {
    const std::size_t first = pending_.find_first_not_of(" \n\r\t,");
    if (first == std::string::npos) return false;
    pending_.erase(0, first);
    if (pending_.front() == ']') {
      pending_.erase(0, 1);
      state_ = State::after_call;
    } else {
      is_in_list_ = true;
      start_reader();
    }
    return true;
  }

  bool read_call(OutputEvents& out) {
    std::size_t taken = 0;
    if (is_value_alone_) {
      while (taken < pending_.size() && !reader_->has_arguments())
        reader_->feed(std::string_view(pending_).substr(taken++, 1), out);
    } else {
      taken = reader_->feed(pending_, out);
    }
    pending_.erase(0, taken);
    OutputEvents arrived = std::exchange(out, {});
    append(out, std::move(arrived));  // one event for all arguments that arrived together
    if (reader_->has_failed()) {
      if (!reader_->has_begun_call()) emit(out, Kind::content, mark_ + reader_->text());
      reader_.reset();
      state_ = State::text;
      return true;
    }
    if (!reader_->is_done() && !(is_value_alone_ && reader_->has_arguments())) return false;
    reader_.reset();
    is_value_alone_ = false;
    mark_.clear();
    state_ = std::exchange(is_in_list_, false) ? State::list
             : format_.close.empty()           ? State::after_call
                                               : State::closing;
    return true;
  }

  bool close_call(bool is_end) {
    skip_white_space(pending_);
    if (pending_.empty() || (!is_end && may_become(pending_, format_.close))) return false;
    if (starts_with(pending_, format_.close)) pending_.erase(0, format_.close.size());
    state_ = State::after_call;
    return true;
  }

  const ToolFormat& format_;
  bool has_tools_;
  std::vector<Tool> tools_;
  State state_;
  bool is_first_thought_ = true, is_in_list_ = false, is_value_alone_ = false;
  std::string mark_;  // mark of the current call, which becomes text if this is not one
  std::unique_ptr<CallReader> reader_;
};

// <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.NAME
// <|constrain|>json<|message|>…<|call|>: heads and bodies in turn, beginning with a head.
class ChannelParser final : public OutputParser {
 public:
  explicit ChannelParser(bool has_tools) : has_tools_(has_tools) {}
  bool is_in_thoughts() const override { return is_in_body_ && kind_ == Kind::reasoning; }

 private:
  static constexpr std::string_view message_mark = "<|message|>";
  static constexpr std::string_view ends[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};

  void parse(bool is_end, OutputEvents& out) override {
    while (is_in_body_ ? read_body(is_end, out) : read_head(out)) {
    }
    if (!is_end) return;
    if (!has_read_head_) emit(out, Kind::content, std::move(pending_));  // the model does not keep to the format
    pending_.clear();
  }

  bool read_head(OutputEvents& out) {
    const std::size_t end = pending_.find(message_mark);
    if (end == std::string::npos) return false;
    const std::string head = pending_.substr(0, end);
    pending_.erase(0, end + message_mark.size());
    is_in_body_ = has_read_head_ = true;
    kind_ = word_after(head, "<|channel|>") == "analysis" ? Kind::reasoning : Kind::content;
    if (const std::string tool = has_tools_ ? tool_in(head) : ""; !tool.empty()) {
      kind_ = Kind::arguments;
      emit(out, Kind::call, tool);
    }
    return true;
  }

  // The tool that a message is addressed to; "" if it is for the user.
  static std::string tool_in(const std::string& head) {
    constexpr std::string_view functions = "functions.";
    const std::string recipient = word_after(head, "to=");
    return starts_with(recipient, functions) ? recipient.substr(functions.size()) : recipient;
  }

  static std::string word_after(const std::string& head, std::string_view mark) {
    const std::size_t at = head.find(mark);
    if (at == std::string::npos) return {};
    const std::size_t begin = at + mark.size();
    return head.substr(begin, head.find_first_of(" <\n", begin) - begin);
  }

  bool read_body(bool is_end, OutputEvents& out) {
    std::size_t end = std::string::npos, held = 0;
    std::string_view found;
    for (const std::string_view mark : ends) {
      const std::size_t at = pending_.find(mark);
      if (at < end) {
        end = at;
        found = mark;
      }
      if (!is_end) held = std::max(held, held_length(pending_, mark));
    }
    const std::size_t shown = end != std::string::npos ? end : pending_.size() - held;
    emit(out, kind_, pending_.substr(0, shown));
    pending_.erase(0, shown);
    if (end == std::string::npos) return false;
    if (found != "<|channel|>") pending_.erase(0, found.size());
    is_in_body_ = false;
    return true;
  }

  bool has_tools_, is_in_body_ = false, has_read_head_ = false;
  Kind kind_ = Kind::content;
};

}  // namespace

void append(OutputEvents& events, OutputEvents more) {
  for (OutputEvent& event : more) emit(events, event.kind, std::move(event.text));
}

OutputEvents OutputParser::feed(std::string_view text) {
  OutputEvents out;
  pending_ += text;
  parse(false, out);
  return out;
}

OutputEvents OutputParser::finish() {
  OutputEvents out;
  parse(true, out);
  return out;
}

std::unique_ptr<OutputParser> make_output_parser(const ToolFormat& format, const OutputParserOptions& options) {
  if (format.syntax == CallSyntax::channels) return std::make_unique<ChannelParser>(options.has_tools);
  return std::make_unique<MarkedParser>(format, options);
}

bool ends_in_thoughts(std::string_view prompt) {
  const std::size_t last = prompt.find_last_not_of(white_space);
  return last != std::string_view::npos && prompt.substr(0, last + 1).size() >= think_open.size() &&
         prompt.substr(last + 1 - think_open.size(), think_open.size()) == think_open;
}

}  // namespace jerboa::server
