#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/generate/constraint.h>

#include "server/request.h"

namespace jerboa::server {

/// How a call of a tool is written.
enum class CallSyntax : std::uint8_t {
  objects,   ///< OPEN {"name": …, "arguments": …} CLOSE, as often as needed
  bare,      ///< the same without marks: the answer as a whole is the object
  elements,  ///< OPEN <function=NAME> <parameter=KEY> VALUE </parameter> … </function> CLOSE
  list,      ///< OPEN [{"name": …, "arguments": …}, …] or OPEN NAME {…}
  channels   ///< messages to a recipient, with thoughts and text in other channels
};

/// A convention that models were trained on, recognised by the model's chat template.
struct ToolFormat {
  std::string_view name;
  std::vector<std::string_view> signs;  ///< of the template: any one of them
  CallSyntax syntax;
  std::string_view open, close;
  std::string_view arguments_key;
  bool has_special_marks;  ///< special tokens, which decoded text does not show
};

/// The format of a template, or Hermes's if it has none that is known.
const ToolFormat& tool_format_of(std::string_view template_source);
const ToolFormat& tool_format_named(std::string_view name);

/// How to make a model call a tool: the answer is begun for it, and what follows is held to a grammar.
struct ForcedCall {
  std::string opening;
  std::shared_ptr<const Grammar> grammar;
  /// The grammar is that of the tools' names alone: force_call() for the one that was chosen says how it goes on, with
  /// an opening that begins with this one and the name. Marks that are special tokens cannot be part of a grammar.
  bool chooses_tool = false;
};
ForcedCall force_call(const ToolFormat& format, const std::vector<Tool>& tools, bool parallel, bool names_follow_marks);

/// A system message that describes tools in Hermes's format, for templates that do not.
std::string describe_tools(const Json& tools_json);

}  // namespace jerboa::server
