// A template is untrusted text: whatever it holds, it renders or throws an Error, within its limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include <jerboa/text/chat_template.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto messages = jerboa::JsonValue::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hé <b>"},
          {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]}])");
  static const jerboa::ChatTemplateOptions options{
      .tools = jerboa::JsonValue::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])"),
      .limits = {.steps = 20'000, .bytes = std::size_t{1} << 20, .depth = 16}};
  try {
    const jerboa::ChatTemplate chat(std::string(reinterpret_cast<const char*>(data), size));
    chat.render(messages, options);
  } catch (const jerboa::Error&) {
  }
  return 0;
}
