#include "server/result_room.h"

#include <gtest/gtest.h>

#include "support/byte_tokenizer.h"

// How much of the results of tools a model reads.
namespace jerboa::test::result_room_test {
namespace {

using server::Json;

Json turn() {
  return Json::array({{{"role", "system"}, {"content", "Be kind."}}, {{"role", "user"}, {"content", "How long?"}}});
}

Json result(std::size_t size) { return {{"role", "tool"}, {"content", std::string(size, 'x')}}; }

class ResultRoomTest : public testing::Test {
 protected:
  static std::int64_t count(const Json& messages) {
    std::int64_t tokens = 0;
    for (const Json& message : messages) tokens += 10 + std::ssize(message["content"].get<std::string>());
    return tokens;
  }
  bool add(Json results) {
    return server::add_results(messages, std::move(results), {tokenizer, context, answer, count});
  }

  Tokenizer tokenizer = Tokenizer::from_json(byte_tokenizer());
  std::int64_t context = 1000, answer = 1000;
  Json messages = turn();
};

TEST_F(ResultRoomTest, LeavesShortResultsAsTheyAre) {
  EXPECT_TRUE(add({result(100), result(50)}));
  EXPECT_EQ(messages[2], result(100));
  EXPECT_EQ(messages[3], result(50));
}

TEST_F(ResultRoomTest, SharesHalfOfTheContextLeft) {
  const std::int64_t left = context - count(messages);
  EXPECT_TRUE(add({result(5000), result(5000)}));
  for (const std::size_t i : {2, 3}) {
    const std::string text = messages[i]["content"];
    EXPECT_EQ(text, std::string(static_cast<std::size_t>(left / 4), 'x') + "\n[cut after " + std::to_string(left / 4) +
                        " of 5000 tokens]");
  }
}

TEST_F(ResultRoomTest, ManyLongResultsFitAndEndTheCalls) {
  bool has_room = true;
  int rounds = 0;
  for (; has_room && rounds < 8; ++rounds) {
    messages.push_back({{"role", "assistant"}, {"content", std::string(40, 'c')}});
    has_room = add({result(5000), result(5000), result(5000)});
    EXPECT_LE(count(messages), context);
  }
  EXPECT_FALSE(has_room);
  EXPECT_GT(rounds, 1);
}

TEST_F(ResultRoomTest, ShortensOnlyOlderResultsOfTheTurn) {
  messages =
      Json::array({{{"role", "user"}, {"content", "Before?"}}, result(200), {{"role", "user"}, {"content", "?"}}});
  const Json before = messages;
  messages.push_back(result(730));
  EXPECT_FALSE(add({result(10)}));
  EXPECT_EQ(messages[1], before[1]);
  EXPECT_LT(messages[3]["content"].get<std::string>().size(), 730u);
  EXPECT_LE(count(messages), context);
}

}  // namespace
}  // namespace jerboa::test::result_room_test
