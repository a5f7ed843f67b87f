#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <memory>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/language/calibration.h>
#include <jerboa/models/quantise.h>
#include <jerboa/ops/ops.h>

#include "language/model_files.h"

namespace jerboa {
namespace {

using Tokens = std::vector<std::int32_t>;
using models::ProductInputs;

constexpr std::int64_t max_bytes = std::int64_t{256} << 20;  // of sums that are in memory at a time

// Splits the text into windows of equal length, each with the beginning-of-text token if the tokenizer adds one.
std::vector<Tokens> windows_of(const Tokenizer& tokenizer, std::string_view text, const CalibrationOptions& options) {
  Tokens tokens = tokenizer.encode(std::string(text)).ids;
  const bool has_mark = !tokens.empty() && tokenizer.is_special(tokens[0]);
  const Tokens mark(tokens.begin(), tokens.begin() + (has_mark ? 1 : 0));
  tokens.erase(tokens.begin(), tokens.begin() + std::ssize(mark));
  if (std::ssize(tokens) > options.tokens) tokens.resize(static_cast<std::size_t>(options.tokens));
  const std::int64_t length = std::min<std::int64_t>(options.window - std::ssize(mark), std::ssize(tokens));
  if (length < 1) throw UsageError("the text for calibration has no tokens");
  std::vector<Tokens> windows;
  for (std::int64_t at = 0; at + length <= std::ssize(tokens); at += length) {
    Tokens window = mark;
    window.insert(window.end(), tokens.begin() + at, tokens.begin() + at + length);
    windows.push_back(std::move(window));
  }
  return windows;
}

// The sums of x xᵀ over the inputs x of a model's matrices while it reads windows of text. The sums are large, so only
// those of a few neighbouring matrices are in memory at a time.
class Calibration {
 public:
  Calibration(detail::ModelFiles files, std::string_view text, const CalibrationOptions& options)
      : files_(std::move(files)),
        options_(options),
        windows_(windows_of(files_.tokenizer, text, options)),
        session_(options.device ? *options.device : Device::best()) {
    if (!models::family_of(files_.config).graphs.decoder)
      throw UsageError(fmt::format("{}: only models that write text can be calibrated", files_.config.origin()));
    if (!is_float(files_.usual_weights)) files_.usual_weights = DType::f16;
    const Graph whole = trace([&] { plan(products()); });
    const models::Family& family = models::family_of(files_.config);
    models::check_params(*files_.weights, whole, family);
    session_.declare(whole);
    models::for_each_param(*files_.weights, whole, family, [&](const models::ParamValues& values) {
      session_.upload_param(values.name, values.bytes);
    });
  }

  const ProductInputs* inputs_of(const std::string& matrix) {
    const auto found = batch_of_.find(matrix);
    if (found == batch_of_.end()) return nullptr;
    if (!loaded_ || *loaded_ != found->second) load(found->second);
    if (options_.on_progress) options_.on_progress(++asked_, batch_of_.size());
    return &sums_.at(source_of_.at(matrix));
  }

 private:
  // A tensor that matrices are multiplied with; several matrices may share one.
  struct Source {
    std::string name;  // of the first such matrix
    std::int64_t size;
  };

  // Builds the model; returns the inputs of its matrices by the matrices' names.
  models::NamedTensors products() const {
    models::NamedTensors found;
    const Tensor ids = tensor_input("ids", {1, std::ssize(windows_[0])}, DType::i32);
    models::family_of(files_.config)
        .logits(files_.config, {.tensors = {{"ids", ids}}, .weights = files_.usual_weights, .products = &found});
    return found;
  }

  // Groups sources into batches, in the order in which the model computes them, which is that of its parameters.
  void plan(const models::NamedTensors& found) {
    std::map<TensorId, std::vector<std::string>> matrices;
    std::map<TensorId, std::int64_t> sizes;
    for (const auto& [name, x] : found) {
      matrices[x.id()].push_back(name);
      sizes[x.id()] = x.dim(-1).value();
    }
    std::int64_t bytes = max_bytes;
    for (const auto& [id, names] : matrices) {
      const std::int64_t size = sizes.at(id), sum_bytes = 4 * size * std::min(size, ProductInputs::block);
      if (size % quantised_group != 0) continue;  // matrices that are not quantised
      if (bytes + sum_bytes > max_bytes) {
        batches_.emplace_back();
        bytes = 0;
      }
      bytes += sum_bytes;
      batches_.back().push_back({names.front(), size});
      for (const std::string& name : names) {
        batch_of_.emplace(name, batches_.size() - 1);
        source_of_.emplace(name, names.front());
      }
    }
    for (const auto& [name, x] : found) output(name, x);
  }

  static std::string output_name(const Source& source, std::int64_t first) {
    return fmt::format("{}/{}", source.name, first);
  }

  template <class Use>
  static void for_each_block(const Source& source, Use use) {
    for (std::int64_t first = 0; first < source.size; first += ProductInputs::block)
      use(first, std::min(first + ProductInputs::block, source.size));
  }

  // Leaves out the layers behind the last requested source.
  Graph graph_of(const std::vector<Source>& batch) const {
    return trace([&] {
      const models::NamedTensors found = products();
      for (const Source& source : batch) {
        const Tensor rows = reshape(found.at(source.name), {-1, source.size});
        for_each_block(source, [&](std::int64_t first, std::int64_t end) {
          const Tensor part = cast(slice(rows, 1, first, end), DType::f32);
          output(output_name(source, first), matmul(part, part, {.transpose_a = true}));
        });
      }
    });
  }

  void load(std::size_t batch) {
    sums_.clear();
    loaded_ = batch;
    Session session = session_.sibling();
    session.add_entry("sums", graph_of(batches_[batch]));
    for (const Tokens& window : windows_) {
      const Result result = session.run("sums", {{"ids", HostTensor({1, std::ssize(window)}, std::span(window))}});
      for (const Source& source : batches_[batch]) add(source, result);
    }
  }

  void add(const Source& source, const Result& result) {
    ProductInputs& inputs = sums_[source.name];
    std::size_t block = 0;
    for_each_block(source, [&](std::int64_t first, std::int64_t) {
      const HostTensor found = result.get(output_name(source, first));
      if (block == inputs.sums.size()) inputs.sums.emplace_back(static_cast<std::size_t>(found.size()));
      std::vector<float>& sums = inputs.sums[block++];
      std::transform(sums.begin(), sums.end(), found.f32().begin(), sums.begin(), std::plus<>());
    });
  }

  detail::ModelFiles files_;
  CalibrationOptions options_;
  std::vector<Tokens> windows_;
  Session session_;
  std::vector<std::vector<Source>> batches_;
  std::map<std::string, std::size_t> batch_of_;
  std::map<std::string, std::string> source_of_;
  std::optional<std::size_t> loaded_;
  std::map<std::string, ProductInputs> sums_;
  std::size_t asked_ = 0;
};

}  // namespace

void quantise_calibrated(const std::filesystem::path& from, const std::filesystem::path& to, DType weights,
                         std::string_view text, const CalibrationOptions& options) {
  if (options.tokens < 1 || options.window < 2)
    throw UsageError(fmt::format("calibration needs at least one token and a window of two, not {} and {}",
                                 options.tokens, options.window));
  Calibration calibration(detail::open_model(from), text, options);
  models::quantise_folder(from, to, weights, [&](const std::string& matrix) { return calibration.inputs_of(matrix); });
}

}  // namespace jerboa
