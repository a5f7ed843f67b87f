#pragma once

#include <functional>
#include <memory>

#include "server/fields.h"
#include "server/request.h"
#include "server/task.h"

namespace jerboa::server {

/// A task that takes a single step: its answer is the function's result.
std::unique_ptr<Task> make_call_task(std::function<Json(LoadedModel& model)> call, std::shared_ptr<Exchange> exchange,
                                     const RequestLimits& limits);

/// {"tokens": […], "count": …} for {"content": …}, {"prompt": …} or, rendered by the chat template, {"messages": […]}.
Json tokenize(LoadedModel& model, const Json& body);
/// {"content": …} for {"tokens": […]}.
Json detokenize(LoadedModel& model, const Json& body);

}  // namespace jerboa::server
