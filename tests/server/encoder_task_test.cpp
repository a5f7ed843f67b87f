#include "server/encoder_task.h"

#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/io/safetensors.h>

#include "server/fake_exchange.h"
#include "server/live_server.h"
#include "support/bert_head.h"

namespace jerboa::server::encoder_task_test {
namespace {

using jerboa::test::ModelFolder;
using test::FakeExchange;

class EncoderFolder : public ModelFolder {
 public:
  EncoderFolder() : ModelFolder("bert") { write("tokenizer.json", test::word_tokenizer()); }

  /// A head with a single score.
  void add_head() const { jerboa::test::write_bert_head(jerboa::test::goldens / "bert", path(), {"relevant"}); }
  std::unique_ptr<LoadedModel> load() const {
    LanguageModelOptions options;
    options.device = Device::cpu(2);
    return std::make_unique<LoadedModel>(ServedModel{"bert", path()}, options, [](std::int64_t) {});
  }
};

std::string words(int count, int first) {
  std::string out;
  for (int i = 0; i < count; ++i) out += "w" + std::to_string((first + i * 7) % 256) + " ";
  return out;
}

TEST(EncoderTask, EmbedsInSlices) {
  const EncoderFolder folder;
  const auto model = folder.load();
  std::vector<std::string> texts;
  EmbeddingRequest request;
  for (int i = 0; i < 60; ++i) {
    texts.push_back(words(20 + i % 40, i));
    request.inputs.emplace_back(texts.back());
  }
  const auto exchange = std::make_shared<FakeExchange>();
  const auto task = make_embedding_task(request, exchange, {});
  task->start(*model);
  int slices = 1;
  while (!task->pump()) {
    EXPECT_FALSE(exchange->is_finished);
    ++slices;
  }
  EXPECT_GE(slices, 3);  // of 1024 tokens, between which texts of a decoder go on
  const Embeddings expected = model->encoder().embed(texts);
  const auto answer = exchange->json();
  ASSERT_EQ(answer["data"].size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto row = expected.row(static_cast<std::int64_t>(i));
    const auto found = answer["data"][i]["embedding"].get<std::vector<float>>();
    for (std::size_t at = 0; at < found.size(); ++at) ASSERT_NEAR(found[at], row[at], 1e-5) << i;
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 60 * 20 + 39 * 20 + 19 * 10);
}

TEST(EncoderTask, HasALimitOfTime) {
  const EncoderFolder folder;
  const auto model = folder.load();
  EmbeddingRequest request;
  request.inputs = {"w1"};
  const auto exchange = std::make_shared<FakeExchange>();
  const auto task = make_embedding_task(request, exchange, {.seconds = 1e-9});
  task->start(*model);
  try {
    task->pump();
    FAIL() << "there was no time";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 504);
  }
}

TEST(EncoderTask, Reranks) {
  const EncoderFolder folder;
  folder.add_head();
  const auto model = folder.load();
  const std::vector<std::string> documents = {words(5, 1), words(9, 20), words(3, 60)};
  RerankRequest request{.model = "", .query = "w5 w6", .documents = documents, .most = 2, .returns_documents = true};
  const auto exchange = std::make_shared<FakeExchange>();
  const auto task = make_rerank_task(request, exchange, {});
  task->start(*model);
  while (!task->pump()) {
  }
  const auto expected = model->encoder().rerank("w5 w6", documents);
  const auto results = exchange->json()["results"];
  ASSERT_EQ(results.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(results[i]["index"], expected[i].index);
    EXPECT_NEAR(results[i]["relevance_score"].get<float>(), expected[i].score, 1e-5);
    EXPECT_EQ(results[i]["document"]["text"], documents[static_cast<std::size_t>(expected[i].index)]);
  }
  const EncoderFolder headless;
  const auto other = make_rerank_task(request, exchange, {});
  EXPECT_THROW(other->start(*headless.load()), ApiError);
}

}  // namespace
}  // namespace jerboa::server::encoder_task_test
