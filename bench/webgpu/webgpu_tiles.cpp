// Which form of a matrix product is fastest on a GPU: times each for some sizes, and checks some results.
//   webgpu_tiles [ADAPTER [ROWSxINNERxCOLUMNS[_f16][_ta][_tb]]...]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <regex>

#include <jerboa/backend/webgpu.h>
#include <jerboa/jerboa.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "arguments.h"
#include "emit_with.h"
#include "wgsl/product/form.h"

namespace jerboa {
namespace {

using wgsl::MatmulForm;
using Kind = MatmulForm::Kind;

struct Size {
  std::int64_t rows, inner, columns;
  DType dtype = DType::f32;
  bool transpose_a = false, transpose_b = false;

  Sizes a() const { return transpose_a ? Sizes{inner, rows} : Sizes{rows, inner}; }
  Sizes b() const { return transpose_b ? Sizes{columns, inner} : Sizes{inner, columns}; }
  std::string text() const {
    return fmt::format("{}x{}x{} {}{}{}", rows, inner, columns, name(dtype), transpose_a ? " ta" : "",
                       transpose_b ? " tb" : "");
  }
};

Size parse(const std::string& text) {
  static const std::regex form("([0-9]+)x([0-9]+)x([0-9]+)(_f16)?(_ta)?(_tb)?");
  std::smatch found;
  if (!std::regex_match(text, found, form)) throw UsageError(text + " is not a size such as 4096x768x768_f16_tb");
  return {std::stoll(found[1]), std::stoll(found[2]), std::stoll(found[3]), found[4].matched ? DType::f16 : DType::f32,
          found[5].matched,     found[6].matched};
}

Graph product(const Size& size) {
  return trace([&] {
    const auto operand = [&](const char* name, const Sizes& shape) {
      return param_input(name, {shape[0], shape[1]}, {.dtype = size.dtype});
    };
    const Tensor c = matmul(operand("a", size.a()), operand("b", size.b()),
                            {.transpose_a = size.transpose_a, .transpose_b = size.transpose_b});
    output("some", slice(slice(c, 0, 0, 4), 1, 0, 8));
  });
}

HostTensor numbers(DType dtype, const Sizes& shape, std::uint64_t seed) {
  HostTensor values(dtype, shape);
  SplitMix random(seed);
  for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, random.uniform() - 0.5);
  return values;
}

// The program of the product alone, in this form, or in the default one if there is none.
Program program_of(const Size& size, const std::optional<MatmulForm>& form, const Target& target) {
  Program program = lower(product(size), target);
  if (!form) {
    emit_wgsl(program, target);
    return program;
  }
  emit_with(program, target, [&](wgsl::KernelWriter& writer) { wgsl::write_matmul_as(writer, *form); });
  return program;
}

// Operands on the device, and every form compiled over them.
class Contest {
 public:
  Contest(Backend& backend, const Size& size) : backend_(backend), size_(size) {
    storage_["a"] = backend.allocate(size.dtype, size.a(), "a");
    storage_["b"] = backend.allocate(size.dtype, size.b(), "b");
    storage_.at("a")->upload(a_);
    storage_.at("b")->upload(b_);
    if (webgpu_target(backend).software) return;
    const Size load{2048, 2048, 2048};
    load_storage_["a"] = backend.allocate(load.dtype, load.a(), "a");
    load_storage_["b"] = backend.allocate(load.dtype, load.b(), "b");
    load_ = backend.load(program_of(load, {}, webgpu_target(backend)),
                         [&](const std::string& name) { return load_storage_.at(name); });
  }

  void add(const std::string& label, const std::optional<MatmulForm>& form) {
    const Program program = program_of(size_, form, webgpu_target(backend_));
    entrants_.push_back({label, backend_.load(program, [&](const std::string& name) { return storage_.at(name); })});
  }

  void run() {
    for (int i = 0; i < 4; ++i) warm();
    struct Row {
      double seconds, error;
      std::string label;
    };
    std::vector<Row> rows;
    for (const Entrant& entrant : entrants_) {
      std::vector<double> samples;
      warm();
      for (int i = 0; i < 9; ++i) samples.push_back(seconds(*entrant.executable));
      std::sort(samples.begin(), samples.end());
      rows.push_back({samples[samples.size() / 2], error(*entrant.executable), entrant.label});
    }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds < b.seconds; });
    fmt::print("{}\n", size_.text());
    for (const Row& row : rows)
      fmt::print("  {:<42} {:>9.1f} us {:>6.1f} TFLOP/s, error {:.1e}\n", row.label, row.seconds * 1e6,
                 2e-12 * static_cast<double>(size_.rows * size_.inner * size_.columns) / row.seconds, row.error);
    std::fflush(stdout);
  }

 private:
  struct Entrant {
    std::string label;
    std::unique_ptr<Executable> executable;
  };

  std::unique_ptr<RunResults> start(Executable& executable) const { return executable.run({inputs_, symbols_, {}}); }

  // The device's clock drops while the host compiles, and while the device is mostly idle.
  void warm() const {
    if (!load_) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) start(*load_)->read("some");
  }

  double seconds(Executable& executable) const {
    executable.set_profiling(true);
    start(executable)->read("some");
    double total = 0;
    for (const KernelTime& time : executable.profile()) total += time.seconds;
    executable.set_profiling(false);
    return total;
  }

  double error(Executable& executable) const {
    const HostTensor some = start(executable)->read("some");
    double largest = 0;
    for (std::int64_t row = 0; row < 4; ++row)
      for (std::int64_t column = 0; column < 8; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < size_.inner; ++k)
          sum += a_.number(size_.transpose_a ? k * size_.rows + row : row * size_.inner + k) *
                 b_.number(size_.transpose_b ? column * size_.inner + k : k * size_.columns + column);
        largest = std::max(largest, std::abs(sum - some.number(row * 8 + column)));
      }
    return largest;
  }

  Backend& backend_;
  Size size_;
  HostTensor a_ = numbers(size_.dtype, size_.a(), 1), b_ = numbers(size_.dtype, size_.b(), 2);
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage_;
  std::map<std::string, std::shared_ptr<DeviceTensor>> load_storage_;
  std::unique_ptr<Executable> load_;  // keeps the device busy
  std::vector<Entrant> entrants_;
  std::map<std::string, HostTensor> inputs_;
  SymbolValues symbols_;
};

std::vector<MatmulForm> forms_for(const Size& size, const Target& target) {
  std::vector<MatmulForm> forms;
  const auto add = [&](MatmulForm form) {
    if (form.threads() > target.max_invocations || form.workgroup_bytes() > target.workgroup_bytes) return;
    const std::int64_t groups =
        (size.rows + form.rows - 1) / form.rows * ((size.columns + form.columns - 1) / form.columns);
    for (const std::int64_t chunks : {1, 2, 4, 8}) {
      if (chunks > 1 && (groups * chunks > 1024 || size.inner / chunks < 64)) continue;
      form.chunks = chunks;
      forms.push_back(form);
    }
  };
  if (size.dtype == DType::f16 && target.subgroup_matrices != SubgroupMatrices::none) {
    const auto matrices = [&](int rows, int columns, int part_rows, int part_columns, bool ahead) {
      MatmulForm form{Kind::matrices, rows, columns, 32, part_rows, part_columns, 8};
      form.ahead = ahead ? 1 : 0;
      add(form);
    };
    matrices(128, 128, 64, 64, true);
    matrices(128, 64, 64, 32, false);
    matrices(64, 64, 32, 32, false);
    matrices(32, 64, 16, 32, false);
    return forms;
  }
  for (const int padding : {0, 4})
    for (const auto& [rows, columns] : {std::pair(128, 128), {128, 64}, {64, 64}}) {
      MatmulForm form{Kind::tiles, rows, columns, 8, 8, 8, padding};
      form.two_buffers = true;
      add(form);
    }
  add({Kind::tiles, 128, 128, 16, 8, 8});
  add({Kind::tiles, 64, 64, 16, 8, 4});
  add({Kind::tiles, 64, 64, 32, 8, 4});
  add({Kind::tiles, 64, 64, 32, 4, 4});
  for (const int inner : {16, 32, 64}) {
    add({Kind::tiles, 32, 64, inner, 4, 4});
    add({Kind::tiles, 32, 32, inner, 4, 4});
    add({Kind::tiles, 16, 32, inner, 4, 4});
  }
  return forms;
}

std::string label_of(const MatmulForm& form) {
  return fmt::format("{} {}x{}x{} part {}x{} pad {}{} chunks {}", form.kind == Kind::matrices ? "matrices" : "tiles",
                     form.rows, form.columns, form.inner, form.part_rows, form.part_columns, form.padding,
                     form.two_buffers ? " two buffers"
                     : form.ahead > 0 ? " ahead"
                                      : "",
                     form.chunks);
}

void run(const std::string& adapter, std::vector<Size> sizes) {
  const auto backend = make_webgpu_backend({.adapter = adapter});
  const Target& target = webgpu_target(*backend);
  if (sizes.empty() && target.software) sizes = {{130, 70, 66}, {256, 256, 256}};
  if (sizes.empty())
    sizes = {{4096, 4096, 4096},
             {2048, 2048, 2048},
             {1024, 1024, 1024},
             {1024, 256, 768, DType::f32, false, true},
             {8192, 768, 3072, DType::f32, false, true},
             {768, 8192, 3072, DType::f32, true, false},
             {4096, 4096, 4096, DType::f16},
             {4096, 4096, 4096, DType::f16, false, true},
             {8192, 768, 768, DType::f16, false, true},
             {768, 8192, 3072, DType::f16, true, false}};
  for (const Size& size : sizes) {
    Contest contest(*backend, size);
    contest.add("as chosen", {});
    for (const MatmulForm& form : forms_for(size, target)) contest.add(label_of(form), form);
    contest.run();
  }
}

}  // namespace
}  // namespace jerboa

int main(int argc, char** argv) {
  return jerboa::run_with_arguments("webgpu_tiles", argc, argv, jerboa::parse, jerboa::run);
}
