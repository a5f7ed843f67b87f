// How fast causal attention of f16 and its gradient are on a GPU, in several forms: times each shader, and checks some
// results against f64 on the CPU. TFLOP/s count the products that causal attention needs, 2 forward and 5 backward.
//   webgpu_attention [ADAPTER [BATCHxHEADSxKEY_HEADSxTIMExSIZE[_large]]...]          _large: scores of some 100
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <regex>

#include <jerboa/backend/webgpu.h>
#include <jerboa/jerboa.h>
#include <jerboa/lower/lower.h>
#include <jerboa/transform/grad.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "arguments.h"
#include "emit_with.h"
#include "wgsl/attention_matrices.h"

namespace jerboa {
namespace {

using wgsl::AttentionMatrixForms;

struct Size {
  std::int64_t batch, heads, key_heads, time, size;
  bool large = false;

  std::int64_t group() const { return heads / key_heads; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size)); }
  Sizes queries() const { return {batch, time, heads * size}; }
  Sizes keys() const { return {batch, time, key_heads * size}; }
  double flops() const {  // of one product
    return 2.0 * static_cast<double>(batch * heads * size) * static_cast<double>(time) * static_cast<double>(time + 1) /
           2;
  }
  std::string text() const {
    return fmt::format("B{} H{}/{} T{} D{}{}", batch, heads, key_heads, time, size, large ? " large scores" : "");
  }
};

Size parse(const std::string& text) {
  static const std::regex form("([0-9]+)x([0-9]+)x([0-9]+)x([0-9]+)x([0-9]+)(_large)?");
  std::smatch found;
  if (!std::regex_match(text, found, form)) throw UsageError(text + " is not a size such as 8x12x12x1024x64");
  return {std::stoll(found[1]), std::stoll(found[2]), std::stoll(found[3]),
          std::stoll(found[4]), std::stoll(found[5]), found[6].matched};
}

Shape shape_of(const Sizes& sizes) { return {sizes[0], sizes[1], sizes[2]}; }

Graph graph_of(const Size& size) {
  Graph graph = trace([&] {
    const auto operand = [&](const char* name, const Sizes& sizes) {
      return param_input(name, shape_of(sizes), {.dtype = DType::f16});
    };
    const Tensor q = operand("q", size.queries()), k = operand("k", size.keys()), v = operand("v", size.keys());
    const Tensor dout = operand("dout", size.queries());
    const Tensor out = attention(
        q, k, v, {.heads = static_cast<int>(size.heads), .kv_heads = static_cast<int>(size.key_heads), .causal = true});
    output("out", out);
    const auto gradients = vector_jacobian({out}, {dout}, {q, k, v});
    output("dq", gradients[0]);
    output("dk", gradients[1]);
    output("dv", gradients[2]);
  });
  for (const Node& node : std::vector<Node>(graph.nodes))
    if (node.op == Op::attention) trace_into(graph, [&] { output("lse", Tensor(graph.identity(), node.outputs[1])); });
  return graph;
}

/// A form of the shaders; `change` derives it from the default one.
struct Variant {
  std::string label;
  std::function<void(AttentionMatrixForms&)> change;
};

Program program_of(const Size& size, const Variant& variant, const Target& target) {
  Program program = lower(graph_of(size), target);
  emit_with(program, target, [&](wgsl::KernelWriter& writer) {
    const auto& kernel = writer.kernel();
    const auto changed = [&](std::optional<AttentionMatrixForms> forms) {
      if (!forms) throw UsageError("no subgroup matrices for this size on this device");
      variant.change(*forms);
      return *forms;
    };
    if (kernel.op == Op::attention) {
      const wgsl::Attention attention(kernel, 3, std::get<AttentionAttrs>(kernel.attrs));
      const auto forms = changed(choose_matrix_forms(writer, attention, {kernel.results.data()}, false));
      write_attention_matrices(writer, attention, forms.forward);
    } else {
      const wgsl::AttentionGrad attention(writer);
      const AttentionMatrixForms forms = changed(choose_matrix_forms(writer, attention, {}, true));
      write_attention_grad_matrices(writer, attention, forms.dq, forms.dkv);
    }
  });
  return program;
}

Program program_without_matrices(const Size& size, Target target) {
  target.subgroup_matrices = SubgroupMatrices::none;
  Program program = lower(graph_of(size), target);
  emit_wgsl(program, target);
  return program;
}

HostTensor numbers(const Sizes& shape, double magnitude, std::uint64_t seed) {
  HostTensor values(DType::f16, shape);
  SplitMix random(seed);
  for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, (random.uniform() * 2 - 1) * magnitude);
  return values;
}

// Checks some rows of the last group of heads in f64.
class Check {
 public:
  Check(const Size& size, const std::map<std::string, HostTensor>& operands) : size_(size), operands_(operands) {}

  /// The largest errors, each relative to the largest value.
  std::string errors(RunResults& results) const {
    const HostTensor out = results.read("out"), lse = results.read("lse"), dq = results.read("dq"),
                     dk = results.read("dk"), dv = results.read("dv");
    Worst of_out, of_lse, of_dq, of_dk, of_dv;
    const std::int64_t head = size_.heads - 1, key_head = size_.key_heads - 1;
    for (const std::int64_t time : some_rows()) {
      const auto weights = probabilities(head, time);
      of_lse.add(lse.number(((size_.batch - 1) * size_.heads + head) * size_.time + time), weights.lse);
      std::vector<double> wanted(index(size_.size)), gradient(index(size_.size));
      double mean = 0;
      std::vector<double> dp(weights.p.size());
      for (std::int64_t key = 0; key <= time; ++key) {
        for (std::int64_t d = 0; d < size_.size; ++d) {
          wanted[index(d)] += weights.p[index(key)] * value("v", key_head, key, d);
          dp[index(key)] += value("dout", head, time, d) * value("v", key_head, key, d);
        }
        mean += weights.p[index(key)] * dp[index(key)];
      }
      for (std::int64_t key = 0; key <= time; ++key)
        for (std::int64_t d = 0; d < size_.size; ++d)
          gradient[index(d)] +=
              weights.p[index(key)] * (dp[index(key)] - mean) * size_.scale() * value("k", key_head, key, d);
      for (std::int64_t d = 0; d < size_.size; ++d) {
        of_out.add(out.number(place(size_.heads, head, time, d)), wanted[index(d)]);
        of_dq.add(dq.number(place(size_.heads, head, time, d)), gradient[index(d)]);
      }
    }
    // Uses the statistics that the device computed, which were checked above, of all queries that see a key.
    for (const std::int64_t key : some_rows()) {
      std::vector<double> key_gradient(index(size_.size)), value_gradient(index(size_.size));
      for (std::int64_t h = key_head * size_.group(); h < size_.heads; ++h)
        for (std::int64_t time = key; time < size_.time; ++time) {
          double product = 0, dp = 0, mean = 0;
          for (std::int64_t d = 0; d < size_.size; ++d) {
            product += value("q", h, time, d) * value("k", key_head, key, d);
            dp += value("dout", h, time, d) * value("v", key_head, key, d);
            mean += value("dout", h, time, d) * out.number(place(size_.heads, h, time, d));
          }
          const double p =
              std::exp(product * size_.scale() - lse.number(((size_.batch - 1) * size_.heads + h) * size_.time + time));
          for (std::int64_t d = 0; d < size_.size; ++d) {
            value_gradient[index(d)] += p * value("dout", h, time, d);
            key_gradient[index(d)] += p * (dp - mean) * size_.scale() * value("q", h, time, d);
          }
        }
      for (std::int64_t d = 0; d < size_.size; ++d) {
        of_dk.add(dk.number(place(size_.key_heads, key_head, key, d)), key_gradient[index(d)]);
        of_dv.add(dv.number(place(size_.key_heads, key_head, key, d)), value_gradient[index(d)]);
      }
    }
    return fmt::format("out {}, lse {}, dq {}, dk {}, dv {}", of_out.text(), of_lse.text(), of_dq.text(), of_dk.text(),
                       of_dv.text());
  }

 private:
  struct Worst {
    double error = 0, largest = 0;
    void add(double computed, double wanted) {
      error = std::isfinite(computed) ? std::max(error, std::abs(computed - wanted)) : computed;
      largest = std::max(largest, std::abs(wanted));
    }
    std::string text() const { return fmt::format("{:.1e} of {:.2g}", error, largest); }
  };
  struct Probabilities {
    double lse;
    std::vector<double> p;
  };

  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  std::vector<std::int64_t> some_rows() const {
    std::vector<std::int64_t> rows{0, 1, size_.time - 1};
    for (std::int64_t i = 1; i < 8; ++i) rows.push_back(size_.time * i / 8 + i);
    return rows;
  }
  std::int64_t place(std::int64_t heads, std::int64_t head, std::int64_t time, std::int64_t d) const {
    return (((size_.batch - 1) * size_.time + time) * heads + head) * size_.size + d;
  }
  double value(const char* name, std::int64_t head, std::int64_t time, std::int64_t d) const {
    const bool of_keys = name[0] == 'k' || name[0] == 'v';
    return operands_.at(name).number(place(of_keys ? size_.key_heads : size_.heads, head, time, d));
  }
  Probabilities probabilities(std::int64_t head, std::int64_t time) const {
    Probabilities result{0, std::vector<double>(index(time + 1))};
    double largest = -1e300, total = 0;
    for (std::int64_t key = 0; key <= time; ++key) {
      for (std::int64_t d = 0; d < size_.size; ++d)
        result.p[index(key)] += value("q", head, time, d) * value("k", head / size_.group(), key, d);
      result.p[index(key)] *= size_.scale();
      largest = std::max(largest, result.p[index(key)]);
    }
    for (double& p : result.p) total += p = std::exp(p - largest);
    for (double& p : result.p) p /= total;
    result.lse = largest + std::log(total);
    return result;
  }

  const Size& size_;
  const std::map<std::string, HostTensor>& operands_;
};

// Operands on the device, and every variant compiled over them.
class Contest {
 public:
  Contest(Backend& backend, const Size& size) : backend_(backend), size_(size) {
    const double magnitude = size.large ? 8 : 1;
    operands_["q"] = numbers(size.queries(), magnitude, 1);
    operands_["k"] = numbers(size.keys(), magnitude, 2);
    operands_["v"] = numbers(size.keys(), 1, 3);
    operands_["dout"] = numbers(size.queries(), 1, 4);
    for (const auto& [name, values] : operands_) {
      storage_[name] = backend.allocate(DType::f16, values.shape(), name);
      storage_.at(name)->upload(values);
    }
  }

  void add(const std::string& label, const Program& program) {
    entrants_.push_back({label, backend_.load(program, [&](const std::string& name) { return storage_.at(name); })});
  }

  void run() {
    fmt::print("{}\n", size_.text());
    warm(0.5);
    for (const Entrant& entrant : entrants_) {
      warm(0.05);
      std::map<std::string, std::vector<double>> samples;
      for (int i = 0; i < 11; ++i) {
        entrant.executable->set_profiling(true);
        wait(*entrant.executable);
        for (const KernelTime& time : entrant.executable->profile()) samples[time.kernel].push_back(time.seconds);
        entrant.executable->set_profiling(false);
      }
      print(entrant.label, samples);
    }
    // Only now, because the clock drops in the meantime.
    check_bits(*entrants_.front().executable);
    for (const Entrant& entrant : entrants_) {
      fmt::print("  {:<34} errors: {}\n", entrant.label, Check(size_, operands_).errors(*start(*entrant.executable)));
      std::fflush(stdout);
    }
  }

 private:
  struct Entrant {
    std::string label;
    std::unique_ptr<Executable> executable;
  };

  std::unique_ptr<RunResults> start(Executable& executable) const { return executable.run({inputs_, symbols_, {}}); }
  void wait(Executable& executable) const { start(executable)->read("lse"); }

  // Whether repeated runs give the same bits: exchanges between threads without proper synchronisation would not.
  void check_bits(Executable& executable) const {
    constexpr int repeats = 20;
    int same = 0;
    std::vector<HostTensor> first;
    for (int i = 0; i <= repeats; ++i) {
      const auto results = start(executable);
      std::vector<HostTensor> values;
      for (const char* name : {"out", "lse", "dq", "dk", "dv"}) values.push_back(results->read(name));
      if (i == 0) {
        first = std::move(values);
        continue;
      }
      const bool is_same = std::equal(values.begin(), values.end(), first.begin(), [](const auto& a, const auto& b) {
        return std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
      });
      same += is_same ? 1 : 0;
    }
    fmt::print("  the same bits in {} of {} repeats\n", same, repeats);
  }

  // The device's clock drops while the host compiles, and while the device has little to do.
  void warm(double seconds) const {
    if (webgpu_target(backend_).software) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 8; ++i) start(*entrants_.front().executable);
      wait(*entrants_.front().executable);
    }
  }

  void print(const std::string& label, std::map<std::string, std::vector<double>>& samples) const {
    double forward = 0, backward = 0;
    std::string parts;
    for (auto& [kernel, times] : samples) {
      std::sort(times.begin(), times.end());
      const double median = times[times.size() / 2];
      const bool is_backward = kernel.find("_d") != std::string::npos || kernel.find("_terms") != std::string::npos;
      (is_backward ? backward : forward) += median;
      parts += fmt::format("{}{} {:.1f}", parts.empty() ? "" : ", ", kernel, median * 1e6);
    }
    fmt::print("  {:<34} forward {:>7.1f} us {:>5.0f} TFLOP/s   backward {:>7.1f} us {:>5.0f} TFLOP/s\n    {}\n", label,
               forward * 1e6, 2e-12 * size_.flops() / forward, backward * 1e6, 5e-12 * size_.flops() / backward, parts);
  }

  Backend& backend_;
  Size size_;
  std::map<std::string, HostTensor> operands_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage_;
  std::vector<Entrant> entrants_;
  std::map<std::string, HostTensor> inputs_;
  SymbolValues symbols_;
};

std::vector<Variant> variants(const Size& size) {
  const auto for_each = [](auto change) {
    return [change](AttentionMatrixForms& forms) {
      for (wgsl::AttentionMatrixForm* form : {&forms.forward, &forms.dq, &forms.dkv}) change(*form);
    };
  };
  using Form = wgsl::AttentionMatrixForm;
  std::vector<Variant> list{{"as chosen", [](AttentionMatrixForms&) {}}};
  if (size.large) return list;
  list.push_back({"with barriers", for_each([](Form& form) { form.barriers = true; })});
  list.push_back({"other fetches", for_each([](Form& form) { form.fetches_ahead = !form.fetches_ahead; })});
  for (const int columns : {1, 2, 4})
    list.push_back({fmt::format("{} columns of a thread", columns),
                    for_each([columns](Form& form) { form.lane_columns = columns; })});
  list.push_back({"tiles of 16 rows", for_each([](Form& form) { form.tile_rows = 16; })});
  return list;
}

void run(const std::string& adapter, std::vector<Size> sizes) {
  const auto backend = make_webgpu_backend({.adapter = adapter});
  const Target& target = webgpu_target(*backend);
  if (sizes.empty() && target.software) sizes = {{1, 2, 1, 64, 16}};
  if (sizes.empty())
    sizes = {{8, 12, 12, 1024, 64}, {8, 12, 12, 1024, 64, true}, {1, 32, 32, 4096, 128}, {1, 32, 8, 4096, 128}};
  for (const Size& size : sizes) {
    Contest contest(*backend, size);
    if (target.subgroup_matrices == SubgroupMatrices::native)
      for (const Variant& variant : variants(size)) contest.add(variant.label, program_of(size, variant, target));
    contest.add("without subgroup matrices", program_without_matrices(size, target));
    contest.run();
  }
}

}  // namespace
}  // namespace jerboa

int main(int argc, char** argv) {
  return jerboa::run_with_arguments("webgpu_attention", argc, argv, jerboa::parse, jerboa::run);
}
