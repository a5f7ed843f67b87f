#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace jerboa::jinja {

/// Throws TemplateError with the line.
Program parse(std::string_view source);

}  // namespace jerboa::jinja
