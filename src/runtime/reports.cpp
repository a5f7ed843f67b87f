#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

#include <jerboa/base/file.h>
#include <jerboa/runtime/session.h>

#include "runtime/session_state.h"

namespace jerboa {

MemoryReport Session::memory_report(const std::string& entry_name) const {
  const std::lock_guard lock(*shared_->mutex);
  return entry(entry_name).executable->memory_report();
}

void Session::set_profiling(const std::string& entry_name, bool on) {
  const std::lock_guard lock(*shared_->mutex);
  entry(entry_name).executable->set_profiling(on);
}

std::vector<KernelTime> Session::profile(const std::string& entry_name) const {
  const std::lock_guard lock(*shared_->mutex);
  return entry(entry_name).executable->profile();
}

std::string print(const std::vector<KernelTime>& times) {
  struct Row {
    std::string kernel, label;
    int calls = 0;
    double seconds = 0, operations = 0, bytes = 0;
  };
  std::map<std::string, Row> rows;
  double total = 0;
  for (const KernelTime& time : times) {
    Row& row = rows[time.kernel];
    row.kernel = time.kernel;
    if (row.calls++ == 0) row.label = time.label;
    row.seconds += time.seconds;
    row.operations += time.operations;
    row.bytes += time.bytes;
    total += time.seconds;
  }
  std::vector<Row> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::sort(sorted.begin(), sorted.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  const auto rate = [](double amount, double seconds) {
    return amount > 0 && seconds > 0 ? fmt::format("{:.2f}", amount / seconds * 1e-12) : std::string();
  };
  std::string text =
      fmt::format("{:>8} {:>10} {:>6} {:>8} {:>6}  {}\n", "calls", "ms", "share", "TFLOP/s", "TB/s", "kernel");
  for (const Row& row : sorted)
    text += fmt::format("{:>8} {:>10.3f} {:>5.1f}% {:>8} {:>6}  {}: {}\n", row.calls, row.seconds * 1e3,
                        total > 0 ? 100 * row.seconds / total : 0, rate(row.operations, row.seconds),
                        rate(row.bytes, row.seconds), row.kernel, row.label);
  return text + fmt::format("{:>8} {:>10.3f}\n", times.size(), total * 1e3);
}

void write_trace(const std::vector<KernelTime>& times, const std::filesystem::path& path) {
  using Json = nlohmann::ordered_json;
  const int process = 1, thread = 1;
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", "jerboa"}}}});
  events.push_back(
      {{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", "kernels"}}}});
  for (const KernelTime& time : times)
    events.push_back({{"name", time.label.empty() ? time.kernel : time.label},
                      {"cat", "kernel"},
                      {"ph", "X"},
                      {"ts", time.start * 1e6},
                      {"dur", time.seconds * 1e6},
                      {"pid", process},
                      {"tid", thread},
                      {"args", {{"kernel", time.kernel}}}});
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  write_file_atomically(path, trace.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string print(const std::vector<EntryInfo>& entries) {
  const auto ports = [](const std::vector<Port>& list) {
    std::vector<std::string> texts;
    for (const Port& port : list) texts.push_back(fmt::format("{} {}", port.name, to_string(port.type)));
    return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, ", "));
  };
  std::string text;
  for (const EntryInfo& entry : entries)
    text += fmt::format("{}: {} -> {}\n", entry.name, ports(entry.inputs), ports(entry.outputs));
  return text;
}

std::string print(const MemoryReport& report) {
  std::string text = fmt::format(
      "persistent  {:>12} bytes: parameters, gradients, states\nactivations {:>12} bytes, shared by {} tensors\n",
      report.persistent, report.activations, report.tensors.size());
  auto tensors = report.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  constexpr std::size_t most = 20;
  for (std::size_t i = 0; i < std::min(tensors.size(), most); ++i)
    text += fmt::format("  {:>12} bytes at {:>12}, kernels {} to {}: {}\n", tensors[i].bytes, tensors[i].offset,
                        tensors[i].first, tensors[i].last, tensors[i].name);
  return text;
}

}  // namespace jerboa
