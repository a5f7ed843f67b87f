// web_cases export FOLDER: writes each case as programs and parameters, with the results of a run on WebGPU and on the
// CPU. web_cases check FOLDER: loads the programs in this fresh process and expects the same bits. web_cases saved
// FOLDER: loads the model that web/test/graph.test.ts trained and saved, and expects the same outputs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>

#include "tests/web/cases.h"

namespace jerboa::test {
namespace {

struct Mismatch : Error {
  using Error::Error;
};

/// By name: "3/loss" is an output of run 3, "final/NAME" a parameter after all of them.
using Results = std::map<std::string, HostTensor>;

Device default_webgpu(const Target& target) {
  WebGpuOptions options;
  options.default_limits = true;
  options.use_f16 = options.use_subgroups = false;
  options.target = target;
  return Device::webgpu(options);
}

Results run(const WebCase& web_case, Session& session) {
  if (!web_case.params.empty()) session.upload_params(web_case.params);
  Results results;
  for (std::size_t i = 0; i < web_case.runs.size(); ++i) {
    const Result result = session.run(web_case.runs[i].entry, web_case.runs[i].inputs);
    for (const std::string& name : result.names()) results.emplace(fmt::format("{}/{}", i, name), result.get(name));
  }
  for (auto& [name, values] : session.download_params()) results.emplace("final/" + name, std::move(values));
  return results;
}

void expect_near(const std::string& what, const Results& a, const Results& b, double tolerance) {
  for (const auto& [name, wanted] : b) {
    const HostTensor& tensor = a.at(name);
    if (tensor.shape() != wanted.shape()) throw Mismatch(fmt::format("{} {}: shapes differ", what, name));
    for (std::int64_t i = 0; i < wanted.size(); ++i)
      if (!(std::abs(tensor.number(i) - wanted.number(i)) <= tolerance * (1 + std::abs(wanted.number(i)))))
        throw Mismatch(fmt::format("{} {}[{}]: {} and {}", what, name, i, tensor.number(i), wanted.number(i)));
  }
}

void write(const std::filesystem::path& path, const Results& tensors, const SafeTensors::Metadata& metadata = {}) {
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors)
    views.push_back(
        {name, tensor.dtype() == DType::i32 ? StoredType::I32 : StoredType::F32, tensor.shape(), tensor.bytes()});
  write_safetensors(path, views, metadata);
}

void export_case(const WebCase& web_case, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const ProgramFile program = compile_program(web_case.graphs, web_case.target);
  save_program(folder / "program.jerboa", program);
  if (web_case.params.empty())
    save_initial_params(folder / "parameters.safetensors", program);
  else
    write(folder / "parameters.safetensors", web_case.params);

  Session webgpu = create_session(web_case.graphs, {.device = default_webgpu(web_case.target)});
  Session cpu = create_session(web_case.graphs, {.device = Device::cpu()});
  const Results on_webgpu = run(web_case, webgpu), on_cpu = run(web_case, cpu);
  expect_near(web_case.name + ", WebGPU and CPU:", on_webgpu, on_cpu, 2e-3);

  Results inputs;
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < web_case.runs.size(); ++i) {
    entries.push_back(web_case.runs[i].entry);
    for (const auto& [name, values] : web_case.runs[i].inputs) inputs.emplace(fmt::format("{}/{}", i, name), values);
  }
  write(folder / "inputs.safetensors", inputs, {{"entries", fmt::format("{}", fmt::join(entries, " "))}});
  webgpu.save(folder / "checkpoint.safetensors");
  write(folder / "webgpu.safetensors", on_webgpu);
  write(folder / "cpu.safetensors", on_cpu);
}

void check_case(const WebCase& web_case, const std::filesystem::path& folder) {
  Session session = Session::load_program(folder / "program.jerboa", default_webgpu(web_case.target));
  const SafeTensors wanted = SafeTensors::open(folder / "webgpu.safetensors");
  for (const auto& [name, values] : run(web_case, session)) {
    const auto bytes = wanted.view(name).bytes;
    if (!std::equal(bytes.begin(), bytes.end(), values.bytes().begin(), values.bytes().end()))
      throw Mismatch(fmt::format("{} {}: a fresh process gives other bits", web_case.name, name));
  }
}

HostTensor read(const SafeTensors& file, const std::string& name, DType dtype) {
  HostTensor tensor(dtype, file.view(name).shape);
  file.read(name, tensor.bytes());
  return tensor;
}

void check_saved(const std::filesystem::path& folder) {
  Trainer<Gpt> gpt = web_trainer();
  gpt.load(folder / "model.safetensors");
  if (gpt.steps() != 20) throw Mismatch(fmt::format("the saved model has taken {} steps", gpt.steps()));
  const SafeTensors outputs = SafeTensors::open(folder / "outputs.safetensors");
  auto forward = gpt.compile_forward();
  const HostTensor logits = forward({{"ids", read(outputs, "ids", DType::i32)}}).get("output");
  expect_near("a model from TypeScript:", {{"output", logits}}, {{"output", read(outputs, "output", DType::f32)}},
              2e-3);
}

}  // namespace
}  // namespace jerboa::test

int main(int argc, char** argv) try {
  using namespace jerboa::test;
  const std::string command = argc == 3 ? argv[1] : "";
  if (command != "export" && command != "check" && command != "saved") {
    std::cerr << "usage: web_cases export|check|saved FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[2];
  if (command == "saved") {
    check_saved(folder / "typescript");
    return 0;
  }
  for (const WebCase& web_case : web_cases())
    (command == "export" ? export_case : check_case)(web_case, folder / web_case.name);
  if (command == "export") export_page_program(folder);
} catch (const jerboa::Error& error) {
  std::cerr << "web_cases: " << error.what() << '\n';
  return 1;
}
