#pragma once

#include <functional>

#include <jerboa/lower/program.h>

#include "wgsl/kernel_writer.h"

namespace jerboa {

/// Like emit_wgsl, except that `write` writes each kernel in a form of its choice; workspaces are not shared.
void emit_with(Program& program, const Target& target, const std::function<void(wgsl::KernelWriter&)>& write);

}  // namespace jerboa
