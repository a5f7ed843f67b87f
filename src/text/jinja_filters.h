#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace jerboa::jinja {

/// Null if there is no filter or test of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

}  // namespace jerboa::jinja
