#include "server/encoder_task.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include "server/log.h"

namespace jerboa::server {
namespace {

class EncoderTask : public Task {
 public:
  EncoderTask(std::shared_ptr<Exchange> exchange, const RequestLimits& limits)
      : Task(limits.seconds), exchange_(std::move(exchange)), limit_(limits.seconds) {}

  void start(LoadedModel& model) final {
    model_ = model.name();
    encoder_ = &encoder_of(model);
    prepare(*encoder_);
    order_.resize(sizes_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    // Texts of similar length share a batch, so that little of it is padding.
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return sizes_[a] > sizes_[b]; });
  }

  bool pump() final {
    if (seconds_left() <= 0) throw late(limit_);
    const std::int64_t most = encoder_->batch_tokens();
    std::vector<std::size_t> slice;
    for (std::int64_t tokens = 0; next_ < order_.size() && (slice.empty() || tokens + sizes_[order_[next_]] <= most);
         ++next_) {
      slice.push_back(order_[next_]);
      tokens += sizes_[order_[next_]];
    }
    if (!slice.empty()) compute(*encoder_, slice);
    if (next_ < order_.size()) return false;
    const std::int64_t tokens = std::accumulate(sizes_.begin(), sizes_.end(), std::int64_t{0});
    Json out = answer(model_);
    out["usage"] = {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
    exchange_->note(fmt::format("{} tokens", tokens));
    exchange_->respond({.body = dump(out)});
    return true;
  }

  void fail(const ApiError& error) final { exchange_->respond(error.response()); }
  bool is_abandoned() const final { return exchange_->is_closed(); }

 protected:
  /// Calls add() for every text.
  virtual void prepare(TextEncoder& encoder) = 0;
  virtual void compute(TextEncoder& encoder, const std::vector<std::size_t>& slice) = 0;
  virtual Json answer(const std::string& model) const = 0;
  void add(std::size_t tokens) { sizes_.push_back(static_cast<std::int64_t>(tokens)); }

 private:
  // A decoder's encoder is loaded here. Clients are not told what is wrong with its files.
  static TextEncoder& encoder_of(LoadedModel& model) {
    try {
      return model.encoder();
    } catch (const UsageError& error) {
      log_line(fmt::format("error: {} does not encode texts: {}", model.name(), error.what()));
      throw ApiError(400, fmt::format("{} does not encode texts; the server's log says why", model.name()), "model");
    }
  }

  std::shared_ptr<Exchange> exchange_;
  double limit_;
  std::string model_;
  TextEncoder* encoder_ = nullptr;
  std::vector<std::int64_t> sizes_;  // of each text, in tokens
  std::vector<std::size_t> order_;
  std::size_t next_ = 0;  // index in that order
};

class EmbeddingTask final : public EncoderTask {
 public:
  EmbeddingTask(EmbeddingRequest request, std::shared_ptr<Exchange> exchange, const RequestLimits& limits)
      : EncoderTask(std::move(exchange), limits), request_(std::move(request)) {}

 private:
  void prepare(TextEncoder& encoder) override {
    if (request_.dimensions > encoder.dimensions())
      throw ApiError(400, fmt::format("the model's embeddings have {} dimensions", encoder.dimensions()), "dimensions");
    for (const Prompt& input : request_.inputs) {
      const auto* text = std::get_if<std::string>(&input);
      texts_.push_back(text ? *text : encoder.tokenizer().decode(std::get<std::vector<std::int32_t>>(input)));
      add(encoder.tokenizer().encode(texts_.back()).size());
    }
    rows_.resize(texts_.size());
  }

  void compute(TextEncoder& encoder, const std::vector<std::size_t>& slice) override {
    std::vector<std::string> texts;
    for (const std::size_t i : slice) texts.push_back(texts_[i]);
    const Embeddings found = encoder.embed(texts, {.dimensions = request_.dimensions});
    for (std::size_t i = 0; i < slice.size(); ++i)
      rows_[slice[i]] = vector_json(found.row(static_cast<std::int64_t>(i)), request_.as_base64);
  }

  Json answer(const std::string& model) const override {
    Json data = Json::array();
    for (std::size_t i = 0; i < rows_.size(); ++i)
      data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", rows_[i]}});
    return {{"object", "list"}, {"data", std::move(data)}, {"model", model}};
  }

  EmbeddingRequest request_;
  std::vector<std::string> texts_;
  std::vector<Json> rows_;
};

class RerankTask final : public EncoderTask {
 public:
  RerankTask(RerankRequest request, std::shared_ptr<Exchange> exchange, const RequestLimits& limits)
      : EncoderTask(std::move(exchange), limits), request_(std::move(request)) {}

 private:
  void prepare(TextEncoder& encoder) override {
    if (encoder.classes().size() != 1)
      throw ApiError(400, "the model does not rerank: that needs a classification head with a single score", "model");
    for (const std::string& document : request_.documents)
      add(encoder.tokenizer().encode_pair(request_.query, document).size());
    scores_.resize(request_.documents.size());
  }

  void compute(TextEncoder& encoder, const std::vector<std::size_t>& slice) override {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const std::size_t i : slice) pairs.emplace_back(request_.query, request_.documents[i]);
    const Embeddings found = encoder.classify_pairs(pairs);
    for (std::size_t i = 0; i < slice.size(); ++i) scores_[slice[i]] = found.row(static_cast<std::int64_t>(i))[0];
  }

  Json answer(const std::string& model) const override {
    std::vector<std::size_t> order(scores_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores_[a] > scores_[b]; });
    if (request_.most > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(request_.most)));
    Json results = Json::array();
    for (const std::size_t i : order) {
      Json result = {{"index", i}, {"relevance_score", scores_[i]}};
      if (request_.returns_documents) result["document"] = {{"text", request_.documents[i]}};
      results.push_back(std::move(result));
    }
    return {{"model", model}, {"results", std::move(results)}};
  }

  RerankRequest request_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Task> make_embedding_task(EmbeddingRequest request, std::shared_ptr<Exchange> exchange,
                                          const RequestLimits& limits) {
  return std::make_unique<EmbeddingTask>(std::move(request), std::move(exchange), limits);
}

std::unique_ptr<Task> make_rerank_task(RerankRequest request, std::shared_ptr<Exchange> exchange,
                                       const RequestLimits& limits) {
  return std::make_unique<RerankTask>(std::move(request), std::move(exchange), limits);
}

}  // namespace jerboa::server
