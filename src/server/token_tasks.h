#pragma once

#include <functional>
#include <memory>

#include "server/fields.h"
#include "server/request.h"
#include "server/task.h"

namespace jerboa::server {

/// A task that is done at once: its answer is the result of a function.
std::unique_ptr<Task> make_call_task(std::function<Json(LoadedModel& model)> call, std::shared_ptr<Exchange> exchange,
                                     const RequestLimits& limits);

/// {"tokens": […], "count": …} for {"content": …} or {"prompt": …}, or, with its template, for {"messages": […]}.
Json tokenize(LoadedModel& model, const Json& body);
/// {"content": …} for {"tokens": […]}.
Json detokenize(LoadedModel& model, const Json& body);

}  // namespace jerboa::server
