// A character GPT: trains on a text file, then generates text in its style.
//   gpt TEXT [STEPS]
//   gpt TEXT [STEPS] --export FOLDER    writes the files for a web page that does both: see docs/web.md
#include "gpt.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

// Continues the text one character at a time; the model sees the last `context` characters.
std::string write(ForwardPass& forward, std::string text, std::size_t context, int characters) {
  Sampler sampler({.temperature = 0.8f, .top_k = 40, .seed = 1});
  for (int i = 0; i < characters; ++i) {
    const std::size_t length = std::min(text.size(), context);
    HostTensor ids(DType::i32, {1, static_cast<std::int64_t>(context)});
    for (std::size_t t = 0; t < length; ++t)
      ids.as<std::int32_t>()[t] = static_cast<unsigned char>(text[text.size() - length + t]);
    HostTensor logits = forward({{"ids", ids}}).get("output");
    text += static_cast<char>(sampler.sample(logits.f32().subspan((length - 1) * 256, 256)));
  }
  return text;
}

int main(int argc, char** argv) try {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string folder;
  if (arguments.size() > 2 && arguments[arguments.size() - 2] == "--export") {
    folder = arguments.back();
    arguments.resize(arguments.size() - 2);
  }
  if (arguments.empty() || arguments.size() > 2 || arguments[0].starts_with("--")) {
    std::cerr << "usage: gpt TEXT [STEPS] [--export FOLDER]\n";
    return 2;
  }
  const int steps = arguments.size() > 1 ? std::max(1, std::atoi(arguments[1].c_str())) : 1000;
  constexpr int batch_size = 16;
  const Gpt model;
  if (!folder.empty()) {
    export_gpt(folder, model, FileContent(arguments[0]).text(), batch_size, steps);
    return 0;
  }
  Trainer gpt(model, next_token_loss, {.optimizer = gpt_optimizer(steps)});
  const TextData text(arguments[0], {.batch = batch_size, .length = model.context});
  std::printf("%lld parameters, %zu characters of text, device %s\n", static_cast<long long>(count_parameters(model)),
              text.size(), gpt.session().device().name().c_str());

  const auto start = std::chrono::steady_clock::now();
  for (auto& batch : text.batches(steps)) {
    const auto r = gpt.step(batch);
    if (r.step % 10 != 0 && r.step != steps) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("\rstep %lld of %d  loss %.3f  %.0f characters/s  ", static_cast<long long>(r.step), steps, r.loss(),
                static_cast<double>(r.step) * batch_size * model.context / seconds);
    std::fflush(stdout);
  }
  auto forward = gpt.compile_forward();
  std::cout << "\n\n" << write(forward, "Shall I compare", static_cast<std::size_t>(model.context), 600) << "\n";
} catch (const Error& error) {
  std::cerr << "gpt: " << error.what() << '\n';
  return 1;
}
