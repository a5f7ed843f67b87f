#pragma once

#include <memory>

#include "server/embeddings.h"
#include "server/task.h"

// Requests for embeddings, scores and classes. They are computed in slices, so that the model's other requests are not
// held up.
namespace jerboa::server {

std::unique_ptr<Task> make_embedding_task(EmbeddingRequest request, std::shared_ptr<Exchange> exchange,
                                          const RequestLimits& limits);
std::unique_ptr<Task> make_rerank_task(RerankRequest request, std::shared_ptr<Exchange> exchange,
                                       const RequestLimits& limits);

}  // namespace jerboa::server
