#pragma once

#include <memory>
#include <vector>

#include "server/reply.h"
#include "server/request.h"
#include "server/task.h"

namespace jerboa::server {

std::unique_ptr<Task> make_chat_task(ChatRequest request, std::unique_ptr<Reply> reply, const RequestLimits& limits);
std::unique_ptr<Task> make_completion_task(CompletionRequest request, std::unique_ptr<Reply> reply,
                                           const RequestLimits& limits);

}  // namespace jerboa::server
