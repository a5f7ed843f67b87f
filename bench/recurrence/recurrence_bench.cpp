// Times one layer's linear attention and its gradient, and the convolution before it, in the shapes of models:
//   recurrence_bench [DEVICE]
// Times are those of all kernels of a run, the best of several runs. The bytes of the state count twice: read and
// written.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fmt/core.h>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <jerboa/jerboa.h>

namespace {

using namespace jerboa;

struct Setting {
  const char* name;
  std::int64_t heads, groups, key_size, value_size;
  bool is_delta;
};

constexpr std::int64_t taps = 4;

// The layer for one sequence, whose state is updated in place; or, for training, with all gradients.
Graph layer(const Setting& s, std::int64_t time, bool trains) {
  return trace([&] {
    const auto input = [&](const char* name, Shape shape) {
      return param_input(name, std::move(shape), {.init = Init::uniform(0.1)});
    };
    const Tensor positions = tensor_input("positions", {1, time}, DType::i32);
    const Tensor q = input("q", {1, time, s.groups, s.key_size}), k = input("k", {1, time, s.groups, s.key_size});
    const Tensor v = input("v", {1, time, s.heads, s.value_size});
    const Tensor gates = input("gates", {1, time, s.heads});
    const Tensor log_decay = -abs(gates);
    const Operand beta = s.is_delta ? Operand(gates) : Operand();
    if (trains) {
      const Tensor y = linear_attention(q, k, v, log_decay, beta).y;
      output("y", append_grad(sum(y * y)).front().grad);
      return;
    }
    const Tensor window = state_input("window", {4, taps - 1, s.heads * s.value_size});
    const Tensor memory = state_input("memory", {4, s.heads, s.key_size, s.value_size});
    const Tensor slots = tensor_input("slots", {1}, DType::i32);
    const Recurrent conv = causal_conv1d(reshape(v, {1, time, s.heads * s.value_size}),
                                         input("weight", {s.heads * s.value_size, taps}), {window, positions, slots});
    update(window, conv.state);
    const Tensor values = reshape(conv.y, v.shape());
    const Recurrent attended = linear_attention(q, k, values, log_decay, beta, {memory, positions, slots});
    update(memory, attended.state);
    output("y", attended.y);
  });
}

// Seconds per kernel, the best of several runs.
std::map<std::string, double> kernel_times(const Device& device, const Setting& s, std::int64_t time, bool trains) {
  Session session(device);
  session.add_entry("run", layer(s, time, trains));
  session.set_profiling("run", true);
  std::vector<std::int32_t> positions;
  for (std::int64_t t = 0; t < time; ++t) positions.push_back(static_cast<std::int32_t>(t + 1));
  const std::int32_t slot = 2;
  TensorMap inputs{{"positions", HostTensor({1, time}, std::span(positions))}};
  if (!trains) inputs.emplace("slots", HostTensor({1}, std::span(&slot, 1)));
  std::map<std::string, double> best;
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(session.run("run", inputs).get("y"));
    std::map<std::string, double> times;
    for (const KernelTime& kernel : session.profile("run")) times[kernel.kernel] += kernel.seconds;
    for (const auto& [name, seconds] : times)
      best[name] = best.contains(name) ? std::min(best[name], seconds) : seconds;
  }
  return best;
}

void measure(const Device& device, const Setting& s) {
  for (const auto& [time, trains] :
       std::vector<std::pair<std::int64_t, bool>>{{1, false}, {8, false}, {512, false}, {512, true}}) {
    double total = 0;
    std::string list;
    for (const auto& [name, seconds] : kernel_times(device, s, time, trains)) {
      total += seconds;
      if (seconds > 0) list += fmt::format("  {} {:.1f}", name, seconds * 1e6);
    }
    fmt::print("{:14} {:3} tokens {:8} {:9.1f} µs:{}\n", s.name, time, trains ? "training" : "", total * 1e6, list);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Device device = Device::by_name(argc > 1 ? argv[1] : "cpu");
    for (const Setting& s : {Setting{"Mamba2-130M", 24, 1, 128, 64, false}, {"Qwen3.5-0.8B", 16, 16, 128, 128, true}})
      measure(device, s);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "recurrence_bench: %s\n", error.what());
    return 1;
  }
}
