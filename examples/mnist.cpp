// Learns to read handwritten digits: a perceptron with two hidden layers, or a small convolutional net.
//   mnist FOLDER [--conv] [EPOCHS]      FOLDER holds the four IDX files of MNIST
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <jerboa/jerboa.h>

using namespace jerboa;

struct Perceptron {
  nn::Linear hidden1{784, 512}, hidden2{512, 512}, out{512, 10};
  JERBOA_FIELDS(hidden1, hidden2, out)

  Tensor operator()(Tensor images) const {
    const Tensor flat = reshape(images, {images.dim(0), 784});
    return out(relu(hidden2(relu(hidden1(flat)))));
  }
};

struct ConvNet {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  nn::Linear out{32 * 7 * 7, 10};
  JERBOA_FIELDS(conv1, conv2, out)

  Tensor operator()(Tensor images) const {
    const Tensor small = max_pool2d(relu(conv1(images)));
    const Tensor tiny = max_pool2d(relu(conv2(small)));
    return out(reshape(tiny, {images.dim(0), tiny.dim(1) * tiny.dim(2) * tiny.dim(3)}));
  }
};

// The fraction of test images that are classified correctly.
double accuracy(ForwardPass& classify, const ImageData& data) {
  constexpr std::int64_t batch = 1000;
  std::int64_t right = 0;
  for (std::int64_t first = 0; first + batch <= data.size(); first += batch) {
    Batch images = data.range(first, batch);
    const HostTensor labels = images.at("labels");
    images.erase("labels");
    const HostTensor classes = classify(images).get("output");
    for (std::size_t i = 0; i < batch; ++i) right += classes.i32()[i] == labels.i32()[i] ? 1 : 0;
  }
  return static_cast<double>(right) / static_cast<double>(data.size());
}

template <class Model>
double train(const std::filesystem::path& folder, int epochs) {
  const ImageData training(folder / "train-images-idx3-ubyte", folder / "train-labels-idx1-ubyte");
  const ImageData test(folder / "t10k-images-idx3-ubyte", folder / "t10k-labels-idx1-ubyte");
  const std::int64_t steps = epochs * (training.size() / 128);
  Trainer trainer(Model{}, classification_loss,
                  {.optimizer = AdamW{.lr = warmup_cosine(1e-3, 50, steps), .weight_decay = 0.01}});
  auto classify =
      trainer.compile_forward([](const Model& model, const Inputs& in) { return argmax(model(in["images"])); });
  const auto start = std::chrono::steady_clock::now();
  double reached = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    double loss = 0;
    for (auto& batch : training.epoch(epoch)) loss = trainer.step(batch).loss();
    reached = accuracy(classify, test);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("epoch %d  loss %.4f  test accuracy %.2f %%  %.1f s\n", epoch + 1, loss, 100 * reached, seconds);
  }
  return reached;
}

int main(int argc, char** argv) {
  bool convolutional = false;
  std::vector<std::string> rest;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--conv")
      convolutional = true;
    else
      rest.emplace_back(argv[i]);
  }
  if (rest.empty()) {
    std::fprintf(stderr, "usage: mnist FOLDER [--conv] [EPOCHS]\n");
    return 2;
  }
  const int epochs = rest.size() > 1 ? std::max(1, std::atoi(rest[1].c_str())) : 3;
  try {
    const double reached = convolutional ? train<ConvNet>(rest[0], epochs) : train<Perceptron>(rest[0], epochs);
    return reached > 0.9 ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
  }
}
