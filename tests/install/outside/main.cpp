#include <cmath>
#include <iostream>

#include <jerboa/jerboa.h>

using namespace jerboa;

// y = 2 a - 3 b + 1, learned from sixteen points.
struct Line {
  nn::Linear map{2, 1};
  JERBOA_FIELDS(map)
  Tensor operator()(Tensor x) const { return squeeze(map(x), {-1}); }
};

int main() {
  HostTensor x(DType::f32, {16, 2}), y(DType::f32, {16});
  for (int i = 0; i < 16; ++i) {
    const float a = static_cast<float>(i % 4), b = static_cast<float>(i / 4);
    x.f32()[2 * i] = a;
    x.f32()[2 * i + 1] = b;
    y.f32()[i] = 2 * a - 3 * b + 1;
  }
  const auto loss = [](const Line& line, const Inputs& in) { return mean(square(line(in["x"]) - in["y"])); };
  Trainer line(Line{}, loss, {.optimizer = Adam{.lr = 0.1}});
  double last = 0;
  for (int step = 0; step < 300; ++step) last = line.step({{"x", x}, {"y", y}}).loss();
  line.save("line");

  const HostTensor weight = line.session().download_param("map.weight");
  std::cout << weight.number(0) << " a + " << weight.number(1) << " b, loss " << last << '\n';
  if (!(last < 1e-3) || std::abs(weight.number(0) - 2) > 0.1 || std::abs(weight.number(1) + 3) > 0.1) return 1;
  if (to_f32(SafeTensors::open("line").view("map.weight")).size() != 2) return 1;
  std::cout << "jerboa works outside its tree\n";
}
