#include "cli/profile_table.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

namespace jerboa::cli {
namespace {

constexpr double tera = 1e-12;

// The longest kernel of a graph, in its fastest run.
KernelTime fastest_kernel(const Graph& graph, const Device& device) {
  Module module = compile(graph, {.device = device});
  KernelTime fastest;
  for (int run = 0; run < 6; ++run) {
    module.session().set_profiling("run", run > 0);  // the first one loads the parameters
    module.run({}).get("output");
    if (run == 0) continue;
    const auto times = module.session().profile("run");
    const auto longest = std::max_element(
        times.begin(), times.end(), [](const KernelTime& a, const KernelTime& b) { return a.seconds < b.seconds; });
    if (longest != times.end() && (fastest.seconds == 0 || longest->seconds < fastest.seconds)) fastest = *longest;
  }
  return fastest;
}

// Outputs one element of a matrix; all of it is computed.
void output_first(const Tensor& y) { output("output", slice(slice(y, 0, 0, 1), 1, 0, 1)); }

double product_rate(const Device& device, DType dtype) {
  constexpr std::int64_t size = 4096;
  const KernelTime time =
      fastest_kernel(trace([&] {
                       const auto operand = [&](const char* name) {
                         return param_input(name, {size, size}, {.init = Init::uniform(1), .dtype = dtype});
                       };
                       const Tensor a = operand("a"), b = operand("b");
                       output_first(matmul(a, b));
                     }),
                     device);
  return time.seconds > 0 ? time.operations / time.seconds : 0;
}

double copy_rate(const Device& device) {
  constexpr std::int64_t rows = 8192, columns = 8192;
  const KernelTime time = fastest_kernel(trace([&] {
                                           const Tensor x = state_input("x", {rows, columns});
                                           const Tensor y = x + 1;
                                           update(x, y);
                                           output_first(y);
                                         }),
                                         device);
  // Updated in place: the memory that it binds is both read and written.
  constexpr double bytes = 2.0 * 4 * rows * columns;
  return time.seconds > 0 ? bytes / time.seconds : 0;
}

struct Row {
  std::string name;
  bool on_matrices = false;
  int calls = 0;
  double seconds = 0, operations = 0, bytes = 0;
};

std::vector<Row> rows_of(const std::vector<KernelTime>& times, bool by_label) {
  static const std::regex layer(R"(\.[0-9]+\.|_[0-9]+\b)");
  std::map<std::string, Row> rows;
  for (const KernelTime& time : times) {
    const std::string label = by_label ? std::regex_replace(time.label, layer, ".*.") : "";
    Row& row = rows[time.kernel + ": " + label];
    if (row.calls++ == 0) row.name = fmt::format("{}: {}", time.kernel, by_label ? label : time.label);
    row.on_matrices = time.kernel.find("matrices") != std::string::npos;
    row.seconds += time.seconds;
    row.operations += time.operations;
    row.bytes += time.bytes;
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return sorted;
}

// The fraction of the device's ceiling that these kernels reach, by whichever limits them more; 0: unknown.
double share_of_ceiling(const Row& row, const Ceilings& ceilings) {
  const double operations = row.on_matrices ? ceilings.f16_operations : ceilings.f32_operations;
  const auto share = [&](double amount, double ceiling) {
    return ceiling > 0 && row.seconds > 0 ? amount / row.seconds / ceiling : 0;
  };
  return std::max(share(row.operations, operations), share(row.bytes, ceilings.bytes));
}

double total_seconds(const std::vector<KernelTime>& times) {
  double total = 0;
  for (const KernelTime& time : times) total += time.seconds;
  return total;
}

std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.2f}", amount / seconds * tera) : std::string();
}

void add_known(nlohmann::ordered_json& object, const char* name, double value) {
  if (value > 0) object[name] = value;
}

}  // namespace

std::string Ceilings::str() const {
  if (bytes == 0) return "";
  std::string text = fmt::format("ceilings: products of f32 {:.1f} TFLOP/s", f32_operations * tera);
  if (f16_operations > 0) text += fmt::format(", of f16 {:.1f} TFLOP/s", f16_operations * tera);
  return text + fmt::format("; copies {:.2f} TB/s\n", bytes * tera);
}

nlohmann::ordered_json Ceilings::json() const {
  auto object = nlohmann::ordered_json::object();
  add_known(object, "f32_teraflops", f32_operations * tera);
  add_known(object, "f16_teraflops", f16_operations * tera);
  add_known(object, "terabytes_per_second", bytes * tera);
  return object;
}

Ceilings measure_ceilings(const Device& device) {
  if (device.name() != "webgpu" || webgpu_target(device.backend()).software) return {};
  Ceilings ceilings;
  ceilings.f32_operations = product_rate(device, DType::f32);
  if (webgpu_target(device.backend()).f16) ceilings.f16_operations = product_rate(device, DType::f16);
  ceilings.bytes = copy_rate(device);
  return ceilings;
}

std::string profile_table(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label) {
  const double total = total_seconds(times);
  std::string text = fmt::format("{:>8} {:>10} {:>9} {:>6} {:>8} {:>6} {:>7}  {}\n", "calls", "ms", "us each", "share",
                                 "TFLOP/s", "TB/s", "ceiling", "kernel");
  for (const Row& row : rows_of(times, by_label)) {
    const double share = share_of_ceiling(row, ceilings);
    text += fmt::format("{:>8} {:>10.3f} {:>9.2f} {:>5.1f}% {:>8} {:>6} {:>7}  {}\n", row.calls, row.seconds * 1e3,
                        row.seconds * 1e6 / row.calls, total > 0 ? 100 * row.seconds / total : 0,
                        rate(row.operations, row.seconds), rate(row.bytes, row.seconds),
                        share > 0 ? fmt::format("{:.0f} %", share * 100) : "", row.name);
  }
  return text + fmt::format("{:>8} {:>10.3f}\n", times.size(), total * 1e3);
}

nlohmann::ordered_json profile_json(const std::vector<KernelTime>& times, const Ceilings& ceilings, bool by_label) {
  const double total = total_seconds(times);
  auto list = nlohmann::ordered_json::array();
  for (const Row& row : rows_of(times, by_label)) {
    auto& kernel = list.emplace_back(
        nlohmann::ordered_json{{"kernel", row.name}, {"calls", row.calls}, {"milliseconds", row.seconds * 1e3}});
    if (row.seconds == 0) continue;
    kernel["share"] = row.seconds / total;
    add_known(kernel, "teraflops", row.operations / row.seconds * tera);
    add_known(kernel, "terabytes_per_second", row.bytes / row.seconds * tera);
    add_known(kernel, "share_of_ceiling", share_of_ceiling(row, ceilings));
  }
  return list;
}

}  // namespace jerboa::cli
