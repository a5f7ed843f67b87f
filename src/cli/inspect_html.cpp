#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <span>

#include "cli/inspection.h"
#include "cli/terminal.h"

// One page without outside requests: a small style sheet, <details> to fold parts, SVG for charts.
namespace jerboa::cli {
namespace {

constexpr std::string_view page_style = R"(
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); --bar: #3b82f6; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p.path { margin-top: .2rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
dl div { border: 1px solid var(--line); border-radius: .5rem; padding: .4rem .8rem; }
dt { font-size: .8rem; color: color-mix(in srgb, currentColor 60%, transparent); }
dd { margin: 0; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
dl div.wide { grid-column: span 2; }
p.path, .quiet { color: color-mix(in srgb, currentColor 60%, transparent); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); }
tr:last-child > * { border-bottom: 0; }
td.number, th.number { text-align: right; white-space: nowrap; } th { font-weight: 600; }
td.bar-cell { width: 40%; padding-right: 0; }
td.name { overflow-wrap: anywhere; }
td.name, code, pre { font-family: ui-monospace, monospace; font-size: .86em; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .4rem 0; padding: .3rem .8rem; }
details > .scroll { overflow-x: auto; margin-top: .4rem; }
summary { cursor: pointer; overflow-wrap: anywhere; } summary .quiet { float: right; margin-left: 1rem; }
summary::after { content: ""; display: block; clear: both; }
.scroll td { white-space: nowrap; }
details.more { border: 0; padding: 0; } details.more > summary { padding: .3rem 0; }
pre { overflow: auto; max-height: 28rem; background: color-mix(in srgb, currentColor 6%, transparent); padding: .7rem; border-radius: .4rem; }
.bar { background: var(--bar); height: .7rem; border-radius: .35rem; min-width: 3px; }
svg { width: 100%; height: 9rem; }
@media (max-width: 40rem) { td.bar-cell { width: 22%; } details { padding: .3rem .5rem; } summary .quiet { float: none; } }
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string facts_section(const Inspection& inspection) {
  constexpr std::size_t wide = 24;  // characters that no longer fit into one column
  std::string out = "<dl>";
  for (const auto& [name, value] : inspection.facts)
    out += fmt::format("<div{}><dt>{}</dt><dd>{}</dd></div>", value.size() > wide ? " class=wide" : "", escaped(name),
                       escaped(value));
  return out + "</dl>";
}

std::string memory_section(const Inspection& inspection) {
  if (inspection.memory.empty()) return "";
  std::int64_t most = 1;
  for (const auto& [name, bytes] : inspection.memory) most = std::max(most, bytes);
  std::string out = "<h2>Weights by precision</h2><table>";
  for (const auto& [name, bytes] : inspection.memory)
    out += fmt::format(
        "<tr><th>{}</th><td class=number>{}</td><td class=bar-cell><div class=bar "
        "style=\"width:{:.1f}%\"></div></td></tr>",
        name, readable_bytes(bytes), 100.0 * static_cast<double>(bytes) / static_cast<double>(most));
  return out + "</table>";
}

// "model.layers.3." of "model.layers.3.mlp.up_proj.weight"; "" outside layers.
std::string layer_of(const std::string& name) {
  for (std::size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
    const std::size_t end = name.find('.', at + 1);
    if (end == std::string::npos) break;
    const std::string part = name.substr(at + 1, end - at - 1);
    if (!part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return name.substr(0, end + 1);
  }
  return "";
}

std::string tensor_rows(const std::vector<const InspectedTensor*>& tensors, std::size_t prefix) {
  const bool has_statistics = tensors.front()->statistics.has_value();
  std::string out = "<div class=scroll><table><tr><th>tensor</th><th>type</th><th>shape</th><th class=number>size</th>";
  if (has_statistics)
    out += "<th class=number>min</th><th class=number>max</th><th class=number>mean</th><th class=number>std</th>";
  out += "</tr>";
  for (const InspectedTensor* tensor : tensors) {
    out += fmt::format("<tr><td class=name>{}</td><td>{}</td><td>{}</td><td class=number>{}</td>",
                       escaped(tensor->name.substr(prefix)), tensor->type, shape_text(tensor->shape),
                       readable_bytes(tensor->bytes));
    if (const auto& values = tensor->statistics)
      out += fmt::format(
          "<td class=number>{:.4g}</td><td class=number>{:.4g}</td><td class=number>{:.4g}</td><td "
          "class=number>{:.4g}</td>",
          values->least, values->most, values->mean, values->deviation);
    out += "</tr>";
  }
  return out + "</table></div>";
}

std::string tensors_section(const Inspection& inspection) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const InspectedTensor*>> layers;
  for (const InspectedTensor& tensor : inspection.tensors) {
    const std::string layer = layer_of(tensor.name);
    if (!layers.contains(layer)) order.push_back(layer);
    layers[layer].push_back(&tensor);
  }
  // Plain sorting would put "10" before "2".
  std::stable_sort(order.begin(), order.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  std::string out = "<h2>Tensors</h2>";
  for (const std::string& layer : order) {
    std::int64_t bytes = 0;
    for (const InspectedTensor* tensor : layers[layer]) bytes += tensor->bytes;
    out += fmt::format(
        "<details{}><summary>{} <span class=quiet>{}, {}</span></summary>{}</details>", layer.empty() ? " open" : "",
        layer.empty() ? "outside of layers" : escaped(layer.substr(0, layer.size() - 1)),
        counted(std::ssize(layers[layer]), "tensor"), readable_bytes(bytes), tensor_rows(layers[layer], layer.size()));
  }
  return out;
}

std::string graph_section(const Inspection& inspection) {
  if (!inspection.graph) return "";
  return fmt::format("<h2>Graph</h2><details><summary>{}</summary><pre>{}</pre></details>",
                     counted(std::ssize(inspection.graph->nodes), "node"), escaped(print(*inspection.graph)));
}

// The bytes of live activations at each step.
std::vector<std::int64_t> bytes_over_time(const Program& program) {
  int last = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena) last = std::max(last, buffer.last);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(last) + 1);
  for (const Buffer& buffer : program.buffers)
    if (buffer.where == Buffer::Where::arena && buffer.within < 0)
      for (int step = std::max(0, buffer.first); step <= buffer.last; ++step)
        bytes[static_cast<std::size_t>(step)] += buffer.bytes;
  return bytes;
}

std::string memory_picture(const Program& program) {
  const std::vector<std::int64_t> bytes = bytes_over_time(program);
  const std::int64_t most = std::max<std::int64_t>(1, *std::max_element(bytes.begin(), bytes.end()));
  constexpr double width = 1000, height = 160;
  std::string path = fmt::format("M0,{}", height);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double y = height - (height - 10) * static_cast<double>(bytes[i]) / static_cast<double>(most);
    const auto count = static_cast<double>(bytes.size());
    path += fmt::format(" L{:.1f},{:.1f} L{:.1f},{:.1f}", width * static_cast<double>(i) / count, y,
                        width * static_cast<double>(i + 1) / count, y);
  }
  return fmt::format(
      "<p class=quiet>activations in use from the first to the last kernel; at most {}</p>"
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none><path d=\"{} L{},{} Z\" fill=\"#3b82f6\" "
      "fill-opacity=\".35\" "
      "stroke=\"#3b82f6\"/></svg>",
      readable_bytes(most), width, height, path, width, height);
}

std::string kernels_of(const Program& program) {
  std::string out;
  if (!program.gpu.emitted) return fmt::format("<pre>{}</pre>", escaped(print(program)));
  for (const GpuStep& step : program.gpu.steps) {
    if (step.shader < 0) {
      out += fmt::format("<details><summary>{} <span class=quiet>copy</span></summary></details>", escaped(step.label));
      continue;
    }
    const ShaderSource& shader = program.gpu.shaders[static_cast<std::size_t>(step.shader)];
    out += fmt::format("<details><summary>{} <span class=quiet>{}, {} threads</span></summary><pre>{}</pre></details>",
                       escaped(step.label.empty() ? shader.name : step.label), escaped(shader.name), shader.threads,
                       escaped(shader.source));
  }
  return out;
}

std::string programs_section(const Inspection& inspection) {
  std::string out;
  for (const ProgramEntry& entry : inspection.programs)
    out += fmt::format("<h2>Memory of {}</h2>{}<h2>Kernels of {}</h2>{}", escaped(entry.name),
                       memory_picture(entry.program), escaped(entry.name), kernels_of(entry.program));
  return out;
}

constexpr std::size_t kernels_at_first = 12;  // shown without unfolding

std::string readable_seconds(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} µs", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string time_rows(std::span<const std::pair<std::string, double>> times, double longest) {
  std::string out = "<table>";
  for (const auto& [label, seconds] : times)
    out += fmt::format(
        "<tr><td class=name>{}</td><td class=number>{}</td><td class=bar-cell><div class=bar "
        "style=\"width:{:.1f}%\"></div></td></tr>",
        escaped(label), readable_seconds(seconds), 100 * seconds / std::max(1e-12, longest));
  return out + "</table>";
}

std::string times_section(const Inspection& inspection) {
  if (inspection.times.empty()) return "";
  std::map<std::string, double> by_kernel;
  double total = 0;
  for (const KernelTime& time : inspection.times) {
    by_kernel[time.label + " " + time.kernel] += time.seconds;
    total += time.seconds;
  }
  std::vector<std::pair<std::string, double>> sorted(by_kernel.begin(), by_kernel.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out = fmt::format("<h2>Time per kernel</h2><p class=quiet>{} in all, of {}</p>", readable_seconds(total),
                                counted(std::ssize(sorted), "kernel"));
  const std::size_t shown = std::min(sorted.size(), kernels_at_first);
  out += time_rows(std::span(sorted).first(shown), sorted.front().second);
  if (shown < sorted.size())
    out += fmt::format("<details class=more><summary class=quiet>the other {}</summary>{}</details>",
                       sorted.size() - shown, time_rows(std::span(sorted).subspan(shown), sorted.front().second));
  return out;
}

}  // namespace

std::string to_html(const Inspection& inspection) {
  const std::string name = std::filesystem::path(inspection.path).lexically_normal().filename().string();
  return fmt::format(
      "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">"
      "<title>{0}</title><style>{1}</style>\n<h1>{0}</h1><p class=path>{2}, "
      "{3}</p>\n{4}\n{5}\n{6}\n{7}\n{8}\n{9}\n</html>\n",
      escaped(name), page_style, escaped(inspection.kind), escaped(inspection.path), facts_section(inspection),
      memory_section(inspection), times_section(inspection), programs_section(inspection), tensors_section(inspection),
      graph_section(inspection));
}

}  // namespace jerboa::cli
