#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/language/calibration.h>
#include <jerboa/language/language_model.h>
#include <jerboa/language/model.h>

namespace jerboa {
namespace {

constexpr int question_tokens = 48, answer_tokens = 220;

class TextWriter {
 public:
  // All texts are generated in one batch, so that each step reads the weights only once.
  TextWriter(const std::filesystem::path& folder, const WrittenTextOptions& options)
      : model_(LanguageModel::load(folder, {.device = options.device, .sequences = options.texts})),
        options_(options) {}

  std::string write() {
    const std::string before = before_question();
    const std::string text = before.empty() ? plain_texts() : conversations(before);
    if (text.empty()) throw UsageError("the model writes nothing by itself; give a text to calibrate with");
    return text;
  }

 private:
  using Streams = std::vector<language::Stream>;

  // The part of the chat template's output before a user's first message; empty if there is no template or if the
  // template changes messages.
  std::string before_question() {
    const std::string question = "question";
    if (!model_.has_chat_template()) return "";
    const std::string rendered = render({{"user", question}});
    const std::size_t at = rendered.rfind(question);
    return at == std::string::npos ? "" : rendered.substr(0, at);
  }

  std::string render(const std::vector<ChatMessage>& messages) {
    return model_.model().chat_template()->render(to_json(messages), {.add_generation_prompt = false});
  }

  // Samples at temperature 1 and without truncation, so that the text follows the model's own distribution.
  GenerateOptions drawing(int tokens, int number) const {
    return {.max_tokens = tokens,
            .sampling = SamplerOptions{.temperature = 1, .seed = options_.seed + static_cast<std::uint64_t>(number)}};
  }

  std::string plain_texts() {
    std::vector<std::int32_t> beginning = model_.encode_prompt("");
    if (beginning.empty() && !model_.end_tokens().empty()) beginning = {model_.end_tokens().front()};
    if (beginning.empty()) return "";
    Streams streams;
    for (int i = 0; i < options_.texts; ++i)
      streams.push_back(model_.submit(beginning, drawing(question_tokens + answer_tokens, i)));
    std::string text;
    for (language::Stream& stream : streams) text += stream.wait().text + "\n";
    return text;
  }

  std::string conversations(const std::string& before) {
    const std::vector<std::int32_t> beginning = model_.encode_prompt(before, {.add_special = false});
    Streams asking, answering;
    for (int i = 0; i < options_.texts; ++i) asking.push_back(model_.submit(beginning, drawing(question_tokens, i)));
    std::vector<ChatMessage> questions;
    for (language::Stream& stream : asking)
      if (std::string question = stream.wait().text; !question.empty())
        questions.push_back({"user", std::move(question)});
    for (std::size_t i = 0; i < questions.size(); ++i)
      answering.push_back(model_.submit_answer(to_json({questions[i]}), drawing(answer_tokens, static_cast<int>(i))));
    std::string text;
    for (std::size_t i = 0; i < questions.size(); ++i)
      text += render({questions[i], {"assistant", answering[i].wait().text}}) + "\n";
    return text;
  }

  LanguageModel model_;
  WrittenTextOptions options_;
};

}  // namespace

std::string write_calibration_text(const std::filesystem::path& model, const WrittenTextOptions& options) {
  if (options.texts < 1) throw UsageError("a text for calibration needs at least one text to be written");
  return TextWriter(model, options).write();
}

}  // namespace jerboa
