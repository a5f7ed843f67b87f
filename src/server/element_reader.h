#pragma once

#include <vector>

#include "server/call_reader.h"
#include "server/request.h"
#include "server/value_types.h"

namespace jerboa::server {

/// Reads <function=NAME> <parameter=KEY> VALUE </parameter> … </function>. Values are plain text without the line
/// breaks at both ends. Strings are passed on as they arrive, other values once they are complete.
class ElementReader final : public CallReader {
 public:
  static constexpr std::string_view beginning = "<function=";

  /// The tools' schemas say which values are strings. They must outlive the reader.
  explicit ElementReader(const std::vector<Tool>& tools) : tools_(tools) {}
  std::size_t feed(std::string_view text, OutputEvents& out) override;

 private:
  enum class State : std::uint8_t { function, parameters, value };

  // Each returns true if it consumed something, so that there may be more to do.
  bool step(OutputEvents& out);
  bool read_function(OutputEvents& out);
  bool read_tag(OutputEvents& out);
  bool read_value(OutputEvents& out);
  void begin_value(const std::string& key, OutputEvents& out);

  const std::vector<Tool>& tools_;
  std::string pending_;
  State state_ = State::function;
  Json parameters_ = {};  // the schema of the called function
  ValueTypes types_;      // types of the current value
  bool is_text_ = false, is_first_line_ = true, has_values_ = false;
};

}  // namespace jerboa::server
