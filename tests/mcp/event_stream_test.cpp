#include "mcp/event_stream.h"

#include <gtest/gtest.h>
#include <vector>

namespace jerboa::test::event_stream_test {
namespace {

std::vector<std::string> events_of(std::string_view text, std::size_t piece) {
  mcp::EventStream stream;
  std::vector<std::string> events;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    stream.add(text.substr(at, piece));
    while (const auto event = stream.take()) events.push_back(*event);
  }
  return events;
}

TEST(EventStreamTest, ReadsEventsInPiecesOfAnySize) {
  constexpr std::string_view text =
      "id: 1\nevent: message\ndata: {\"a\": 1}\n\n"
      ": a comment\r\n\r\n"
      "event: ping\ndata: x\n\n"
      "data: one\ndata:two\nretry: 5\n\n"
      "data:\n\n"
      "data: unfinished\n";
  for (const std::size_t piece : {1, 2, 7, 1000})
    EXPECT_EQ(events_of(text, piece), (std::vector<std::string>{"{\"a\": 1}", "one\ntwo", ""})) << piece;
}

}  // namespace
}  // namespace jerboa::test::event_stream_test
