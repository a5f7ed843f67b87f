#include <algorithm>

#include "lower/target.h"
#include "wgsl/row_reduction.h"
#include "wgsl/whole_kernels.h"

// The sum of squares of many tensors: as many tensors per shader as it can bind, each with separate workgroups that
// produce partial sums; a last shader adds those. Elements that are NaN or infinite make the sum infinite. They are
// detected by bit pattern and replaced by a large number until the end, because WGSL may assume that arithmetic stays
// finite.
namespace jerboa::wgsl {
namespace {

class SumSquares {
 public:
  explicit SumSquares(KernelWriter& writer)
      : writer_(writer),
        threads_(writer.target().software ? 32 : std::min(256, writer.target().max_invocations)),
        result_(writer.kernel().results[0]) {
    for (const TensorAccess& operand : writer.kernel().operands) {
      const Dim count = element_count(operand.shape);
      if (count.upper_bound() == 0) continue;
      tensors_.push_back({operand, count, workgroups_for(count.upper_bound())});
      groups_ += tensors_.back().groups;
    }
  }

  void write() {
    const bool direct = groups_ == 1;
    const int partials = direct ? -1 : writer_.workspace(DType::f32, Dim(std::max<std::int64_t>(1, groups_)));
    std::int64_t before = 0;
    for (std::size_t first = 0; first < tensors_.size();) {
      const std::size_t end = as_many_as_fit(first);
      before += write_some(first, end, partials, before);
      first = end;
    }
    if (!direct) write_last(partials);
  }

 private:
  struct Tensor {
    const TensorAccess& access;
    Dim count;
    std::int64_t groups = 1;
  };

  // Enough workgroups to fill a device, and enough elements per thread to be worthwhile.
  std::int64_t workgroups_for(std::int64_t elements) const {
    constexpr std::int64_t most = 1024, each = 8;
    return std::clamp<std::int64_t>(elements / (threads_ * each), 1, most);
  }

  std::size_t as_many_as_fit(std::size_t first) const {
    int bindings = 1;
    std::size_t end = first;
    for (; end < tensors_.size(); ++end) {
      const auto memory = static_cast<std::size_t>(tensors_[end].access.binding);
      bindings += detail::binding_count(writer_.memories()[memory].bytes, writer_.target());
      if (bindings > writer_.target().max_bindings && end > first) break;
    }
    return end;
  }

  // Returns the number of partial sums that it writes.
  std::int64_t write_some(std::size_t first, std::size_t end, int partials, std::int64_t before) {
    Shader shader = writer_.shader("sum_squares", threads_);
    RowReduction total(shader, Op::sum, DType::f32);
    std::int64_t groups = 0;
    for (std::size_t i = first; i < end; ++i) {
      const Tensor& tensor = tensors_[i];
      shader.open("if (group >= {}u && group < {}u) {{", groups, groups + tensor.groups);
      shader.open("for (var place = (group - {}u) * {}u + lane; place < {}; place += {}u) {{", groups, threads_,
                  shader.size(tensor.count), tensor.groups * threads_);
      shader.line("let value = {};", shader.load(tensor.access, shader.split_index("place", tensor.access.shape)));
      total.add(fmt::format("{}(value)", shader.use("square_or_large")), "place");
      shader.close();
      shader.close();
      groups += tensor.groups;
    }
    const std::string sum = total.finish(threads_, "lane", threads_, 1);
    shader.open("if (lane == 0u) {{");
    if (partials < 0)
      store_result(shader, sum);
    else
      shader.store(partials, fmt::format("group + {}u", before), fmt::format("min({}, {})", sum, large));
    shader.close();
    writer_.add(std::move(shader), Dim(groups));
    return groups;
  }

  void write_last(int partials) {
    Shader shader = writer_.shader("sum_squares_parts", threads_);
    RowReduction total(shader, Op::sum, DType::f32);
    shader.open("for (var place = lane; place < {}u; place += {}u) {{", groups_, threads_);
    total.add(shader.load(partials, "place"), "place");
    shader.close();
    const std::string sum = total.finish(threads_, "lane", threads_, 1);
    shader.open("if (lane == 0u) {{");
    store_result(shader, sum);
    shader.close();
    writer_.add(std::move(shader), Dim(1));
  }

  // Infinity comes from a variable: a constant may not be infinite.
  void store_result(Shader& shader, const std::string& sum) {
    shader.line("var infinity = 0x7f800000u;");
    shader.store(result_, {}, fmt::format("select({0}, bitcast<f32>(infinity), !({0} < {1}))", sum, large));
  }

  static constexpr const char* large = "1e38";

  KernelWriter& writer_;
  int threads_;
  const TensorAccess& result_;
  std::vector<Tensor> tensors_;
  std::int64_t groups_ = 0;
};

}  // namespace

template <>
void write_whole_op<Op::sum_squares>(KernelWriter& writer) {
  SumSquares(writer).write();
}

}  // namespace jerboa::wgsl
