#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/call_reader.h"
#include "server/tool_format.h"

namespace jerboa::server {

/// Splits a model's output into thoughts, text and tool calls, as it arrives. Text that may be the beginning of a mark
/// is held back until that is certain. A malformed call is passed on as text.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  OutputEvents feed(std::string_view text);
  /// Signals the end of the answer.
  OutputEvents finish();
  /// Whether further output belongs to thoughts.
  virtual bool is_in_thoughts() const = 0;

 protected:
  virtual void parse(bool is_end, OutputEvents& out) = 0;
  std::string pending_;
};

struct OutputParserOptions {
  bool has_tools = false;       ///< otherwise calls are passed on as text
  bool is_in_thoughts = false;  ///< the prompt has opened thoughts
  /// Their schemas are needed for formats that write arguments as plain text.
  std::vector<Tool> tools = {};
};

/// Appends events, merging them with preceding ones of the same kind.
void append(OutputEvents& events, OutputEvents more);

std::unique_ptr<OutputParser> make_output_parser(const ToolFormat& format, const OutputParserOptions& options);

/// Whether a rendered prompt ends inside thoughts that the model is to continue.
bool ends_in_thoughts(std::string_view prompt);

}  // namespace jerboa::server
