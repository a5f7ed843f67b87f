#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "models/original_name.h"
#include "models/param_reader.h"
#include "models/param_reads.h"
#include "models/round_for_products.h"
#include "models/stored_param.h"

// Converts the tensors of a checkpoint to the parameters of a graph.
namespace jerboa::models {
namespace {

/// Reads the next parameter on a thread while the caller uses the one before it. In builds without threads it is read
/// at once.
class ReadAhead {
 public:
  template <class Read>
  explicit ReadAhead(const Read& read) {
    const auto work = [this, read] {
      try {
        values_ = read();
      } catch (...) {
        error_ = std::current_exception();
      }
    };
    try {
      thread_ = std::thread(work);
    } catch (const std::system_error&) {
      work();
    }
  }
  ReadAhead(const ReadAhead&) = delete;
  ~ReadAhead() {
    if (thread_.joinable()) thread_.join();
  }

  std::vector<ParamValues> take() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(values_);
  }

 private:
  std::vector<ParamValues> values_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

void for_each_param(const TensorSource& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use, const ReadOptions& options) {
  check_params(weights, graph, family);
  std::vector<std::pair<const TensorInfo*, StoredParam>> params;
  for_each_stored(weights, graph, family,
                  [&](const TensorInfo& param, StoredParam stored) { params.emplace_back(&param, std::move(stored)); });
  std::array<ParamReader, 2> readers{ParamReader(weights),
                                     ParamReader(weights)};  // for the parameter in use and the next one
  const auto memory_for = [&](std::size_t i) {
    PartMemory memory;
    if (!options.memory || i >= params.size()) return memory;
    const std::vector<ParamValues> parts = parts_of(*params[i].first);
    for (std::size_t part = 0; part < parts.size(); ++part) memory[part] = options.memory(parts[part].name);
    return memory;
  };
  const auto read = [&](std::size_t i, const PartMemory& memory) {
    const auto& [param, stored] = params[i];
    const ProductInputs* inputs = options.inputs ? options.inputs(original_name(param->name)) : nullptr;
    if (inputs == nullptr) return readers[i % 2].read(*param, stored, memory);
    return readers[i % 2].read(*param, stored, memory, [&](auto matrix, std::int64_t in, const GroupWriter& writer) {
      round_for_products(matrix, in, *inputs, writer);
    });
  };
  const bool reads_ahead = !options.inputs;  // inputs are computed on demand, on all threads
  std::vector<ParamValues> values;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (i == 0 || !reads_ahead) values = read(i, memory_for(i));
    std::optional<ReadAhead> next;
    if (reads_ahead && i + 1 < params.size())
      next.emplace([&read, i, memory = memory_for(i + 1)] { return read(i + 1, memory); });
    for (const ParamValues& part : values) use(part);
    if (next) values = next->take();
  }
  if (options.seconds == nullptr) return;
  for (const ParamReader& reader : readers) {
    options.seconds->reading += reader.seconds().reading;
    options.seconds->converting += reader.seconds().converting;
  }
}

std::vector<ParamReads> param_reads(const TensorSource& weights, const Graph& graph, const Family& family) {
  std::vector<ParamReads> all;
  for_each_stored(weights, graph, family, [&](const TensorInfo& param, const StoredParam& stored) {
    ParamReads reads{param.name, stored.names};
    const std::string original = original_name(param.name);
    if (stored.quantised) {
      reads.tensors.push_back(original + std::string(scales_suffix));
      if (param.type.dtype == DType::i4) reads.tensors.push_back(original + std::string(mins_suffix));
    }
    const bool plain = !stored.quantised && !stored.transposed && !stored.packed && !stored.mxfp4;
    if (plain && stored.names.size() == 1 && stored.shape.size() == 2) reads.rows = stored.shape[0];
    all.push_back(std::move(reads));
  });
  return all;
}

void read_param(const TensorSource& weights, const TensorInfo& param, const Family& family,
                const std::function<void(const ParamValues& values)>& use) {
  ParamReader reader(weights);
  for (const ParamValues& values : reader.read(param, stored_as(weights, family, param), {})) use(values);
}

DType usual_weights(const TensorSource& weights) {
  if (const auto quantised = quantised_type(weights)) return *quantised;
  std::size_t f16 = 0, bf16 = 0, all = 0;
  for (const std::string& name : weights.names()) {
    const TensorEntry& entry = weights.entry(name);
    all += entry.elements();
    f16 += entry.type == StoredType::F16 ? entry.elements() : 0;
    bf16 += entry.type == StoredType::BF16 ? entry.elements() : 0;
  }
  return 2 * f16 > all ? DType::f16 : 2 * bf16 > all ? DType::bf16 : DType::f32;
}

std::map<std::string, HostTensor> read_params(const TensorSource& weights, const Graph& graph, const Family& family,
                                              const KnownInputs& inputs) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family,
                 [&](const ParamValues& values) {
                   HostTensor copy(values.dtype, values.shape);
                   std::copy(values.bytes.begin(), values.bytes.end(), copy.bytes().begin());
                   params.emplace(values.name, std::move(copy));
                 },
                 {.inputs = inputs});
  return params;
}

}  // namespace jerboa::models