// The effect of mixed precision on a model's loss: trains the character GPT of examples/gpt.h in f32 and in mixed
// precision, from the same seed on the same nine tenths of a text, and prints the losses on the last tenth.
//   validation_loss TEXT [STEPS [DEVICE]]
#include <cstdio>
#include <cstdlib>

#include "../../examples/gpt.h"

namespace {

double mean_loss(Trainer<Gpt>& trainer, const TextData& text) {
  auto forward = trainer.compile_forward([](const Gpt& model, const Inputs& in) { return next_token_loss(model, in); });
  constexpr int batches = 50;
  double total = 0;
  for (int i = 0; i < batches; ++i) total += forward(text.batch(i)).get("output").item();
  return total / batches;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fputs("usage: validation_loss TEXT [STEPS [DEVICE]]\n", stderr);
    return 2;
  }
  const int steps = argc > 2 ? std::atoi(argv[2]) : 500;
  const Device device = argc > 3 ? Device::by_name(argv[3]) : Device::best();
  const FileContent file(argv[1]);
  const std::string_view text = file.text();
  const std::size_t training = text.size() / 10 * 9;
  const Gpt model;
  const TextDataOptions options{.batch = 16, .length = model.context};
  const TextData train = TextData::from_text(text.substr(0, training), options),
                 rest = TextData::from_text(text.substr(training), options);
  double losses[2];
  for (const bool mixed : {false, true}) {
    Trainer<Gpt> trainer(model, next_token_loss,
                         {.optimizer = gpt_optimizer(steps),
                          .device = device,
                          .seed = 1,
                          .precision = mixed ? Precision::mixed_f16 : Precision::full});
    double loss = 0;
    for (auto& batch : train.batches(steps)) {
      const auto result = trainer.step(batch);
      if (result.step == steps) loss = result.loss();
    }
    losses[mixed] = mean_loss(trainer, rest);
    std::printf("%-5s after %d steps: training loss %.4f, validation loss %.4f\n", mixed ? "mixed" : "f32", steps, loss,
                losses[mixed]);
  }
  std::printf("mixed / f32: %.4f\n", losses[1] / losses[0]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "validation_loss: %s\n", error.what());
  return 1;
}
