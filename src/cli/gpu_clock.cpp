#include "cli/gpu_clock.h"

#include <algorithm>

#include <jerboa/backend/webgpu.h>
#include <jerboa/ops/ops.h>

#include "cli/timing.h"

namespace jerboa::cli {

GpuClock::GpuClock(const Device& device) {
  if (device.name() != "webgpu" || webgpu_target(device.backend()).software) return;
  constexpr std::int64_t size = 2048;
  product_ = std::make_shared<Module>(compile(trace([] {
                                                const auto operand = [](const char* name) {
                                                  return param_input(name, {size, size}, {.init = Init::uniform(1)});
                                                };
                                                const Tensor y = matmul(operand("a"), operand("b"));
                                                output("output", slice(slice(y, 0, 0, 1), 1, 0, 1));
                                              }),
                                              {.device = device}));
}

// Times several products, waiting only for the last one.
double GpuClock::seconds() {
  constexpr int repeats = 8;
  const double start = now();
  for (int i = 1; i < repeats; ++i) product_->run({});
  product_->run({}).get("output");
  return (now() - start) / repeats;
}

void GpuClock::warm() {
  if (!product_) return;
  constexpr double at_least = 0.4, at_most = 4, unchanged = 0.15, faster = 0.99;
  const double start = now();
  double fastest = std::numeric_limits<double>::max(), since = start;
  while (now() - start < at_most && (now() - start < at_least || now() - since < unchanged)) {
    const double current = seconds();
    if (current < fastest * faster) since = now();
    fastest = std::min(fastest, current);
  }
  best_ = std::min(best_, fastest);
}

double GpuClock::speed() {
  if (!product_) return 1;
  const double current = std::min({seconds(), seconds(), seconds()});
  best_ = std::min(best_, current);
  return best_ / current;
}

}  // namespace jerboa::cli
