#include <gtest/gtest.h>
#include <memory>
#include <numeric>

#include "c_api/buffers.h"
#include "support/byte_tokenizer.h"
#include "support/temp_folder.h"

// A language model without a device, driven like a page would; the test decides which tokens are drawn.
namespace jerboa::c_api_test::language_test {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

const std::filesystem::path golden = JERBOA_SOURCE_DIR "/tests/data/goldens/llama";

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class Language {
 public:
  explicit Language(const Json& options = Json::object()) : weights_(test::read_text(golden / "model.safetensors")) {
    std::uint64_t header = 0;
    std::memcpy(&header, weights_.data(), sizeof(header));
    Json value{{"files",
                {{{"name", "config.json"}},
                 {{"name", "tokenizer.json"}},
                 {{"name", "model.safetensors"}, {"size", weights_.size()}}}},
               {"pipelined", false}};
    value.update(options);
    const std::string model = bundle_of(
        value, {test::read_text(golden / "config.json"), test::byte_tokenizer(), weights_.substr(0, 8 + header)});
    jerboa_language* made = nullptr;
    EXPECT_EQ(jerboa_language_create(unsigned_bytes(model), model.size(), &made), JERBOA_OK) << jerboa_last_error();
    handle_.reset(made);
  }

  jerboa_language* get() const { return handle_.get(); }
  const std::string& weights() const { return weights_; }
  Json describe() const {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_language_describe(get(), &buffer), JERBOA_OK) << jerboa_last_error();
    return Json::parse(taken(buffer));
  }
  int submit(const Tokens& prompt, int max_tokens, const Json& options = Json::object()) {
    Json wanted{{"tokens", prompt}, {"max_tokens", max_tokens}, {"sampling", {{"temperature", 0}}}};
    wanted.update(options);
    const std::string request = wanted.dump();
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_language_submit(get(), request.data(), request.size(), 0, &buffer), JERBOA_OK)
        << jerboa_last_error();
    const Json submitted = Json::parse(taken(buffer));
    EXPECT_EQ(submitted.at("prompt_tokens"), prompt.size());
    return submitted.at("id");
  }
  // The value is null if there is nothing to do.
  OpenedBundle next() {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_language_next(get(), 0, &buffer), JERBOA_OK) << jerboa_last_error();
    const std::string bytes = taken(buffer);
    return bytes.empty() ? OpenedBundle{} : opened(bytes);
  }
  // Each row's token is the given one.
  Json complete(const OpenedBundle& step, std::int32_t token) {
    return complete(step, Json::array({"tokens"}), {bytes_of(Tokens(rows_of(step), token))});
  }
  Json complete(const OpenedBundle& step, const Json& names, const std::vector<std::string>& parts) {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(try_complete(step, names, parts, buffer), JERBOA_OK) << jerboa_last_error();
    return Json::parse(taken(buffer));
  }
  jerboa_status try_complete(const OpenedBundle& step, const Json& names, const std::vector<std::string>& parts,
                             jerboa_buffer*& buffer) {
    const std::string results = bundle_of(names, parts);
    return jerboa_language_complete(get(), step.value.at("step"), unsigned_bytes(results), results.size(), 1, &buffer);
  }
  Json fail(const OpenedBundle& step, bool out_of_memory) {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_language_fail(get(), step.value.at("step"), "lost", 4, out_of_memory ? 1 : 0, 1, &buffer),
              JERBOA_OK)
        << jerboa_last_error();
    return Json::parse(taken(buffer));
  }

  static std::size_t rows_of(const OpenedBundle& step) {
    for (const Json& input : step.value.at("runs").back().at("inputs"))
      if (input.at("name") == "lengths") return input.at("shape").at(0);
    return 0;
  }

 private:
  std::string weights_;
  std::unique_ptr<jerboa_language, decltype(&jerboa_language_free)> handle_{nullptr, jerboa_language_free};
};

TEST(CApiLanguage, DescribesTheModelAndReadsItsParameters) {
  const Language language;
  const Json described = language.describe();
  EXPECT_EQ(described.at("model_type"), "llama");
  EXPECT_EQ(described.at("weights"), "f32");
  EXPECT_GT(described.at("cache_bytes"), 0);
  ASSERT_FALSE(described.at("entries").empty());
  const std::string entry = described.at("entries").at(0);
  jerboa_buffer* buffer = nullptr;
  ASSERT_EQ(jerboa_language_program(language.get(), entry.data(), entry.size(), &buffer), JERBOA_OK)
      << jerboa_last_error();
  EXPECT_GT(taken(buffer).size(), 1000u);
  EXPECT_EQ(jerboa_language_program(language.get(), "other", 5, &buffer), JERBOA_USAGE_ERROR);
  EXPECT_STREQ(jerboa_last_error(), "the model has no entry \"other\"");

  int found = 0;
  std::uint64_t header = 0;
  std::memcpy(&header, language.weights().data(), sizeof(header));
  for (const Json& read : described.at("reads")) {
    const Json& tensor = read.at("tensors").at(0);
    const std::string bytes = language.weights().substr(tensor.at("begin"), tensor.at("bytes"));
    const std::string request =
        bundle_of({{"name", read.at("name")}, {"tensors", {tensor.at("name")}}, {"rows", 0}}, {bytes});
    ASSERT_EQ(jerboa_language_parameter(language.get(), unsigned_bytes(request), request.size(), &buffer), JERBOA_OK)
        << jerboa_last_error();
    const OpenedBundle values = opened(taken(buffer));
    ASSERT_EQ(values.parts.size(), 1u);
    EXPECT_EQ(values.value.at(0).at("name"), read.at("name"));
    EXPECT_EQ(values.parts[0], bytes) << read.at("name");
    ++found;
  }
  EXPECT_GT(found, 10);
}

TEST(CApiLanguage, GeneratesTheTokensThatTheHostDraws) {
  Language language;
  EXPECT_TRUE(language.next().value.is_null());
  const Tokens prompt{5, 6, 7, 8};
  const int id = language.submit(prompt, 3);
  std::string text;
  for (const char letter : {'a', 'b', 'c'}) {
    const OpenedBundle step = language.next();
    ASSERT_FALSE(step.value.is_null());
    const Json& run = step.value.at("runs").back();
    EXPECT_EQ(run.at("reads"), Json::array({"tokens"}));
    if (letter == 'a') {
      std::size_t part = 0;
      for (; run.at("inputs").at(part).at("name") != "ids"; ++part) continue;
      Tokens ids(step.parts[part].size() / sizeof(std::int32_t));
      std::memcpy(ids.data(), step.parts[part].data(), step.parts[part].size());
      EXPECT_EQ(Tokens(ids.end() - 4, ids.end()), prompt);
    }
    EXPECT_TRUE(language.next().value.is_null()) << "its token is not there yet";
    const Json events = language.complete(step, letter);
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].at("id"), id);
    EXPECT_EQ(events[0].at("token"), static_cast<int>(letter));
    text += events[0].at("text");
    EXPECT_EQ(events[0].contains("finished"), letter == 'c');
    if (letter != 'c') continue;
    EXPECT_EQ(events[0].at("finished"), "length");
    EXPECT_EQ(events[0].at("statistics").at("tokens"), 3);
  }
  EXPECT_EQ(text, "abc");
  EXPECT_TRUE(language.next().value.is_null());
  jerboa_buffer* buffer = nullptr;
  EXPECT_EQ(language.try_complete({.value = {{"step", 7}}, .parts = {}}, Json::array(), {}, buffer),
            JERBOA_USAGE_ERROR);
  EXPECT_STREQ(jerboa_last_error(), "step 7 is not the oldest in flight");
}

TEST(CApiLanguage, TakesTheResultsThatAStepNames) {
  Language language(Json{{"device_sampling", true}});
  language.submit({5, 6}, 2, {{"logprobs", 2}, {"sampling", {{"temperature", 1}, {"banned_tokens", {3}}}}});
  const OpenedBundle step = language.next();
  const Json names = step.value.at("runs").back().at("reads");
  EXPECT_EQ(names, Json::array({"tokens", "logprobs", "likeliest", "likeliest_logprobs"}));
  const std::string token = bytes_of(Tokens{'a'}), drawn = bytes_of(std::vector<float>{-0.5f});
  const std::string listed = bytes_of(Tokens{'a', 3}), values = bytes_of(std::vector<float>{-0.5f, -1e30f});
  jerboa_buffer* buffer = nullptr;
  for (const std::vector<std::string>& parts : {std::vector{token, drawn, listed},
                                                {token, drawn, listed, drawn},
                                                {token, "", listed, values},
                                                {token, drawn, listed, "a"}})
    EXPECT_EQ(language.try_complete(step, names, parts, buffer), JERBOA_USAGE_ERROR) << parts.size();
  const Json events = language.complete(step, names, {token, drawn, listed, values});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("logprobs").at("drawn"), -0.5);
  EXPECT_EQ(events[0].at("logprobs").at("likeliest"), Json::parse(R"([[97, -0.5]])")) << "3 is banned";
}

TEST(CApiLanguage, ReadsSamplingOptions) {
  Language language;
  struct Wrong {
    const char* request;
    const char* message;
  };
  for (const Wrong& wrong : {
           Wrong{R"({"tokens": [5], "sampling": {"logit_bias": {"5": 1}}})", "logit_bias must be a list of tokens"},
           Wrong{R"({"tokens": [5], "sampling": {"logit_bias": [[5]]}})", "logit_bias must be a list of tokens"},
           Wrong{R"({"tokens": [5], "sampling": {"logit_bias": [[-5, 1]]}})", "logit_bias: -5 is not a token"},
           Wrong{R"({"tokens": [5], "sampling": {"banned_tokens": [1000]}})", "banned_tokens names token 1000"},
           Wrong{R"({"tokens": [5], "logprobs": 21})", "logprobs is 21"},
       }) {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_language_submit(language.get(), wrong.request, std::strlen(wrong.request), 0, &buffer),
              JERBOA_USAGE_ERROR)
        << wrong.request;
    EXPECT_NE(std::string(jerboa_last_error()).find(wrong.message), std::string::npos) << jerboa_last_error();
  }
}

TEST(CApiLanguage, EndsTextsThatFailOrAreCancelled) {
  Language language;
  language.submit({5, 6}, 4);
  Json events = language.fail(language.next(), false);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("finished"), "failed");
  EXPECT_EQ(events[0].at("error"), "lost");

  // Without memory, only the youngest ends.
  const int kept = language.submit({5, 6}, 1), refused = language.submit({5, 6, 7}, 4);
  events = language.fail(language.next(), true);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("id"), refused);
  events = language.complete(language.next(), 'x');
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("id"), kept);
  EXPECT_EQ(events[0].at("finished"), "length");

  const int cancelled = language.submit({5, 6}, 4);
  jerboa_buffer* buffer = nullptr;
  ASSERT_EQ(jerboa_language_cancel(language.get(), cancelled, 2, &buffer), JERBOA_OK);
  events = Json::parse(taken(buffer));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("finished"), "cancelled");
  EXPECT_TRUE(language.next().value.is_null());
  EXPECT_EQ(jerboa_language_submit(language.get(), R"({"tokens": []})", 14, 0, &buffer), JERBOA_USAGE_ERROR);
}

}  // namespace
}  // namespace jerboa::c_api_test::language_test
