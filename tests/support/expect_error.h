#pragma once

#include <gtest/gtest.h>
#include <string>
#include <string_view>

namespace jerboa::test {

/// The message of the error of type Expected that `action` must throw.
template <typename Expected, typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// Expects that `action` throws an Expected whose message contains `part`.
template <typename Expected, typename Action>
void expect_error(Action&& action, std::string_view part) {
  const std::string message = message_of<Expected>(action);
  EXPECT_NE(message.find(part), std::string::npos) << "message: " << message << "\nwithout: " << part;
}

}  // namespace jerboa::test
