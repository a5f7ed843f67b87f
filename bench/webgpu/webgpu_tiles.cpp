// Which tile of a matrix product is fastest on a GPU: times each for some sizes, and checks some results.
//   webgpu_tiles [ADAPTER]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/jerboa.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "wgsl/matmul.h"

namespace jerboa {
namespace {

struct Size {
  std::int64_t rows, inner, columns;
  bool transpose_a = false, transpose_b = false;
};

Graph product(const Size& size) {
  return trace([&] {
    const Tensor a = param_input("a", size.transpose_a ? Shape{size.inner, size.rows} : Shape{size.rows, size.inner});
    const Tensor b =
        param_input("b", size.transpose_b ? Shape{size.columns, size.inner} : Shape{size.inner, size.columns});
    const Tensor c = matmul(a, b, {.transpose_a = size.transpose_a, .transpose_b = size.transpose_b});
    output("some", slice(slice(c, 0, 0, 4), 1, 0, 8));
  });
}

HostTensor numbers(const Sizes& shape, std::uint64_t seed) {
  HostTensor values(DType::f32, shape);
  SplitMix random(seed);
  for (float& value : values.f32()) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

struct Timing {
  double seconds = 0, error = 0;
};

Timing time_tile(Backend& backend, const Size& size, const wgsl::MatmulTile& tile, std::int64_t chunks) {
  const Target& target = webgpu_target(backend);
  Program program = lower(product(size), target);
  // Only this product, with this tile.
  Program own = program;
  emit_wgsl(own, target);
  std::vector<wgsl::ShaderMemory> memories;
  const Dispatch::Part& part = program.cpu.dispatches.at(0).parts.at(0);
  for (const int number : part.buffers)
    memories.push_back({program.buffers[static_cast<std::size_t>(number)].dtype,
                        program.buffers[static_cast<std::size_t>(number)].bytes});
  wgsl::KernelWriter writer(program.cpu.kernels[static_cast<std::size_t>(part.kernel)], target, memories);
  wgsl::write_tiled_matmul(writer, tile, chunks);
  program.gpu.emitted = true;
  for (std::size_t i = memories.size(); i < writer.memories().size(); ++i) {
    Buffer buffer;
    buffer.name = "workspace";
    buffer.bytes = writer.memories()[i].bytes;
    buffer.elements = buffer.bytes / 4;
    buffer.arena = static_cast<int>(program.arenas.size());
    program.arenas.push_back(buffer.bytes);
    program.buffers.push_back(buffer);
  }
  const auto buffer_of = [&](int memory) {
    const auto number = static_cast<std::size_t>(memory);
    return number < memories.size() ? part.buffers[number]
                                    : static_cast<int>(program.buffers.size() - (writer.memories().size() - number));
  };
  for (const auto& step : writer.steps()) {
    GpuStep out;
    out.shader = static_cast<int>(program.gpu.shaders.size());
    program.gpu.shaders.push_back(step.shader.source);
    out.workgroups = step.workgroups;
    for (const auto& binding : step.shader.bindings)
      out.bindings.push_back({buffer_of(binding.memory), binding.offset, binding.bytes, binding.written});
    program.gpu.steps.push_back(std::move(out));
  }
  const Sizes a_shape = size.transpose_a ? Sizes{size.inner, size.rows} : Sizes{size.rows, size.inner};
  const Sizes b_shape = size.transpose_b ? Sizes{size.columns, size.inner} : Sizes{size.inner, size.columns};
  const HostTensor a = numbers(a_shape, 1), b = numbers(b_shape, 2);
  std::map<std::string, std::shared_ptr<DeviceTensor>> storage{{"a", backend.allocate(DType::f32, a_shape, "a")},
                                                               {"b", backend.allocate(DType::f32, b_shape, "b")}};
  storage.at("a")->upload(a);
  storage.at("b")->upload(b);
  const auto executable = backend.load(program, [&](const std::string& name) { return storage.at(name); });
  executable->set_profiling(true);
  const std::map<std::string, HostTensor> inputs;
  const SymbolValues symbols;
  const std::vector<std::string> captures;
  std::vector<double> samples;
  Timing timing;
  for (int i = 0; i < 12; ++i) {
    executable->set_profiling(true);
    const auto results = executable->run({inputs, symbols, captures});
    double seconds = 0;
    for (const KernelTime& time : executable->profile()) seconds += time.seconds;
    if (i >= 2) samples.push_back(seconds);
    if (i > 0) continue;
    const HostTensor some = results->read("some");
    for (std::int64_t row = 0; row < 4; ++row)
      for (std::int64_t column = 0; column < 8; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < size.inner; ++k)
          sum += a.number(size.transpose_a ? k * size.rows + row : row * size.inner + k) *
                 b.number(size.transpose_b ? column * size.inner + k : k * size.columns + column);
        timing.error = std::max(timing.error, std::abs(sum - some.number(row * 8 + column)));
      }
  }
  std::sort(samples.begin(), samples.end());
  timing.seconds = samples[samples.size() / 2];
  return timing;
}

void run(const std::string& adapter) {
  const auto backend = make_webgpu_backend({.adapter = adapter});
  const bool tiny = webgpu_target(*backend).software;
  std::vector<Size> sizes{{4096, 4096, 4096},
                          {1024, 1024, 1024},
                          {1024, 256, 768, false, true},
                          {1024, 256, 1024, false, true},
                          {1024, 1024, 256, false, true},
                          {256, 1024, 768, true, false},
                          {8192, 768, 3072, false, true},
                          {768, 8192, 3072, true, false},
                          {8192, 768, 50304, false, true}};
  if (tiny) sizes = {{130, 70, 66}, {256, 256, 256}};
  const std::vector<wgsl::MatmulTile> tiles{
      {128, 128, 16, 8, 8}, {128, 128, 8, 8, 8},   {128, 128, 32, 8, 8}, {128, 64, 16, 8, 4}, {64, 128, 16, 8, 4},
      {64, 128, 16, 4, 8},  {64, 64, 16, 4, 4},    {64, 64, 32, 4, 4},   {64, 64, 16, 8, 4},  {32, 64, 16, 4, 4},
      {32, 32, 16, 4, 4},   {256, 128, 16, 16, 8}, {128, 256, 8, 8, 16}};
  for (const Size& size : sizes) {
    std::vector<std::pair<double, std::string>> rows;
    for (const wgsl::MatmulTile& tile : tiles)
      for (const std::int64_t chunks : {1, 2, 4, 8}) {
        const std::int64_t groups =
            (size.rows + tile.rows - 1) / tile.rows * ((size.columns + tile.columns - 1) / tile.columns);
        if (chunks > 1 && (groups * chunks > 1024 || size.inner / chunks < 64)) continue;
        if (tile.threads() > 256 || tile.workgroup_bytes() > webgpu_target(*backend).workgroup_bytes) continue;
        const Timing timing = time_tile(*backend, size, tile, chunks);
        rows.emplace_back(
            timing.seconds,
            fmt::format("{}x{}x{} thread {}x{} chunks {}: {:.1f} us, {:.1f} TFLOP/s, error {:.1e}", tile.rows,
                        tile.columns, tile.inner, tile.thread_rows, tile.thread_columns, chunks, timing.seconds * 1e6,
                        2e-12 * static_cast<double>(size.rows * size.inner * size.columns) / timing.seconds,
                        timing.error));
      }
    std::sort(rows.begin(), rows.end());
    fmt::print("{} x {} x {}{}{}\n", size.rows, size.inner, size.columns, size.transpose_a ? " aT" : "",
               size.transpose_b ? " bT" : "");
    for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), 5); ++i) fmt::print("  {}\n", rows[i].second);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace jerboa

int main(int argc, char** argv) try { jerboa::run(argc > 1 ? argv[1] : ""); } catch (const std::exception& error) {
  std::fprintf(stderr, "webgpu_tiles: %s\n", error.what());
  return 1;
}
