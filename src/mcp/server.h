#pragma once

#include <string>
#include <vector>

#include "mcp/tool.h"

namespace jerboa::mcp {

/// Offers tools over two descriptors, one message per line, until the input ends. Calls run one after another on the
/// calling thread; another thread answers everything else meanwhile, so that calls can be cancelled.
void serve(const std::vector<Tool>& tools, const std::string& version, int input, int output);

}  // namespace jerboa::mcp
