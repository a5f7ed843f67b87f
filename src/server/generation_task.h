#pragma once

#include <memory>
#include <vector>

#include "server/reply.h"
#include "server/request.h"
#include "server/server_tools.h"
#include "server/task.h"

namespace jerboa::server {

/// With the server's tools, the model may call them, and the answer is what it finally says. They must outlive the
/// task.
std::unique_ptr<Task> make_chat_task(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits,
                                     const ServerTools* tools = nullptr);
std::unique_ptr<Task> make_completion_task(CompletionRequest request, std::unique_ptr<Reply> reply,
                                           const RequestLimits& limits);

}  // namespace jerboa::server
