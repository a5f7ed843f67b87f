#include <iostream>
#include <span>
#include <vector>

#include <jerboa/io/safetensors.h>

int main() {
  const std::vector<float> weights{1, 2, 3, 4};
  jerboa::write_safetensors("outside.safetensors", std::vector{jerboa::view_of("w", {2, 2}, std::span(weights))});
  const auto file = jerboa::SafeTensors::open("outside.safetensors");
  if (to_f32(file.view("w")) != weights) return 1;
  std::cout << "jerboa works outside its tree\n";
}
