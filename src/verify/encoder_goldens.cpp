#include "verify/encoder_goldens.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/models/pooling.h>

#include "verify/golden_folder.h"

namespace jerboa {
namespace {

class EncoderGoldens : GoldenFolder {
 public:
  using GoldenFolder::GoldenFolder;

  std::vector<CaseReport> run() const {
    const TensorMap inputs = read_inputs();
    const Result results = compute(inputs);
    std::vector<CaseReport> reports;
    for (const char* name : {"hidden", "pooled", "logits"})
      if (goldens.contains(name)) reports.push_back(compare(name, results.get(name), inputs.at("lengths")));
    if (reports.empty()) refuse("has neither hidden nor pooled nor logits");
    return reports;
  }

 private:
  // The number of tokens in each row, whose padding must be at the end.
  HostTensor lengths(const HostTensor& mask) const {
    const std::int64_t batch = mask.shape()[0], time = mask.shape()[1];
    HostTensor lengths(DType::i32, {batch});
    for (std::int64_t row = 0; row < batch; ++row) {
      std::int64_t length = 0;
      while (length < time && mask.number(row * time + length) != 0) ++length;
      if (length == 0) refuse(fmt::format("attention_mask hides the first token of row {}", row));
      for (std::int64_t i = length; i < time; ++i)
        if (mask.number(row * time + i) != 0) refuse(fmt::format("attention_mask has a gap in row {}", row));
      lengths.set_number(row, static_cast<double>(length));
    }
    return lengths;
  }

  TensorMap read_inputs() const {
    TensorMap inputs{{"ids", integers("input_ids")}};
    const Sizes shape = inputs.at("ids").shape();
    if (inputs.at("ids").size() == 0) refuse("input_ids has no tokens");
    const HostTensor mask = integers("attention_mask");
    if (mask.shape() != shape) refuse("attention_mask and input_ids have different shapes");
    inputs.emplace("lengths", lengths(mask));
    if (goldens.contains("token_type_ids")) inputs.emplace("token_types", integers("token_type_ids"));
    return inputs;
  }

  Result compute(const TensorMap& inputs) const {
    const auto forward = [&](const Inputs& in) {
      const models::NamedTensors results = family.encode(config, {.tensors = in.all()});
      const Tensor mean = models::pool(results.at("hidden"), in["lengths"], models::Pooling::mean);
      std::vector<std::pair<std::string, Tensor>> outputs(results.begin(), results.end());
      outputs.emplace_back("pooled", models::unit_rows(mean));
      return Outputs(std::move(outputs));
    };
    const Graph graph = forward_graph(specs_of(inputs), forward);
    check(graph);
    Module module = compile(graph, {.device = device});
    module.session().upload_params(models::read_params(weights, module.ir(), family));
    return module.run(inputs);
  }

  CaseReport compare(const std::string& name, const HostTensor& tensor, const HostTensor& lengths) const {
    const Sizes shape(goldens.view(name).shape);
    if (tensor.shape() != shape)
      return {name, false, fmt::format("{} instead of {}", to_string(tensor.shape()), to_string(shape))};
    std::vector<double> computed(tensor.f32().begin(), tensor.f32().end()), golden = to_f64(goldens.view(name));
    if (name == "hidden") {
      computed = within_texts(computed, shape, lengths);
      golden = within_texts(golden, shape, lengths);
    }
    const auto wrong = difference(computed, golden, tolerance_for_typical(golden));
    return {name, !wrong, wrong.value_or("")};
  }

  // Drops the values of padding, which are never used.
  static std::vector<double> within_texts(const std::vector<double>& all, const Sizes& shape,
                                          const HostTensor& lengths) {
    std::vector<double> texts;
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      const auto begin = all.begin() + row * shape[1] * shape[2];
      texts.insert(texts.end(), begin, begin + lengths.i32()[static_cast<std::size_t>(row)] * shape[2]);
    }
    return texts;
  }
};

}  // namespace

std::vector<CaseReport> verify_encoder_goldens(const std::filesystem::path& folder, const Device& device) {
  return EncoderGoldens(folder, device).run();
}

}  // namespace jerboa
