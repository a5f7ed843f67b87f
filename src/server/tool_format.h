#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/generate/constraint.h>

#include "server/request.h"

namespace jerboa::server {

/// The syntax of tool calls.
enum class CallSyntax : std::uint8_t {
  objects,   ///< OPEN {"name": …, "arguments": …} CLOSE, as often as needed
  bare,      ///< the same without marks: the whole answer is the object
  elements,  ///< OPEN <function=NAME> <parameter=KEY> VALUE </parameter> … </function> CLOSE
  list,      ///< OPEN [{"name": …, "arguments": …}, …] or OPEN NAME {…}
  channels   ///< messages to a recipient, with thoughts and text in other channels
};

/// A call format that models were trained on, recognised by the model's chat template.
struct ToolFormat {
  std::string_view name;
  std::vector<std::string_view> signs;  ///< text in the template, any of which identifies the format
  CallSyntax syntax;
  std::string_view open, close;
  std::string_view arguments_key;
  bool has_special_marks;  ///< its marks are special tokens, which decoded text leaves out
};

/// The format of a template; Hermes's if the template shows none that is known.
const ToolFormat& tool_format_of(std::string_view template_source);
const ToolFormat& tool_format_named(std::string_view name);

/// How to make a model call a tool: its answer starts with an opening, and a grammar constrains the rest.
struct ForcedCall {
  std::string opening;
  std::shared_ptr<const Grammar> grammar;
  /// The grammar covers only the tools' names: force_call() for the chosen one gives the rest, with an opening that
  /// starts with this one and the name. Needed because marks that are special tokens cannot be part of a grammar.
  bool chooses_tool = false;
};
ForcedCall force_call(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel, bool names_follow_marks);

/// A system message that describes tools in Hermes's format, for templates that do not.
std::string describe_tools(const Json& tools_json);

}  // namespace jerboa::server
