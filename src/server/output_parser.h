#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/call_reader.h"
#include "server/tool_format.h"

namespace jerboa::server {

/// Separates what a model writes into thoughts, text and calls of tools, piece by piece. Text that may be the beginning
/// of a mark is held back until that is known. A call that turns out not to be one is text.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  OutputEvents feed(std::string_view text);
  /// The end of the answer.
  OutputEvents finish();
  /// What comes next belongs to thoughts.
  virtual bool is_in_thoughts() const = 0;

 protected:
  virtual void parse(bool is_end, OutputEvents& out) = 0;
  std::string pending_;
};

struct OutputParserOptions {
  bool has_tools = false;       ///< otherwise what looks like a call is text
  bool is_in_thoughts = false;  ///< the prompt has begun them
  /// With their schemas, for formats that write arguments as plain text.
  std::vector<Tool> tools = {};
};

/// Adds events, joined with those of the same kind before them.
void append(OutputEvents& events, OutputEvents more);

std::unique_ptr<OutputParser> make_output_parser(const ToolFormat& format, const OutputParserOptions& options);

/// Whether a rendered prompt ends within thoughts that the model is to continue.
bool ends_in_thoughts(std::string_view prompt);

}  // namespace jerboa::server
