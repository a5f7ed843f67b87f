#pragma once

#include <memory>

#include "server/embeddings.h"
#include "server/task.h"

// What encoders are asked for. It is computed in slices, between which the texts of the same model go on.
namespace jerboa::server {

std::unique_ptr<Task> make_embedding_task(EmbeddingRequest request, std::shared_ptr<Exchange> exchange,
                                          const RequestLimits& limits);
std::unique_ptr<Task> make_rerank_task(RerankRequest request, std::shared_ptr<Exchange> exchange,
                                       const RequestLimits& limits);

}  // namespace jerboa::server
