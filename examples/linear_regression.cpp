// Fits y = 3 a - 2 b + 1 to noisy points.
#include <iostream>

#include <jerboa/jerboa.h>

using namespace jerboa;

int main() {
  Trainer line(nn::Linear{2, 1}, [](auto& model, auto& in) { return mean(square(model(in["x"]) - in["y"])); },
               {.optimizer = Adam{.lr = 0.1}});
  SplitMix random(1);
  for (int step = 0; step < 300; ++step) {
    HostTensor x(DType::f32, {64, 2}), y(DType::f32, {64, 1});
    for (std::size_t i = 0; i < 64; ++i) {
      const auto a = static_cast<float>(random.uniform()), b = static_cast<float>(random.uniform());
      x.f32()[2 * i] = a, x.f32()[2 * i + 1] = b;
      y.f32()[i] = 3 * a - 2 * b + 1 + 0.01f * static_cast<float>(random.uniform() - 0.5);
    }
    if (auto r = line.step({{"x", x}, {"y", y}}); r.step % 50 == 0)
      std::cout << r.step << "  loss " << r.loss() << '\n';
  }
  const HostTensor weight = line.session().download_param("weight"), bias = line.session().download_param("bias");
  std::cout << "y = " << weight.f32()[0] << " a + " << weight.f32()[1] << " b + " << bias.f32()[0] << '\n';
}
