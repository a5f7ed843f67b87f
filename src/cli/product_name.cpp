#include "cli/product_name.h"

#include <regex>

#include <jerboa/ops/ops.h>

namespace jerboa::cli {

std::optional<ProductName> product_of(const std::string& name) {
  static const std::regex form("matmul([0-9]{1,6})(?:x([0-9]{1,6})x([0-9]{1,6}))?(_f16)?(_weights)?");
  std::smatch found;
  if (!std::regex_match(name, found, form)) return {};
  ProductName product;
  product.m = product.k = product.n = std::stoll(found[1]);
  if (found[2].matched) product.k = std::stoll(found[2]), product.n = std::stoll(found[3]);
  if (found[4].matched) product.dtype = DType::f16;
  product.weights = found[5].matched;
  return product;
}

Graph ProductName::graph() const {
  return trace([&] {
    const auto operand = [&](const char* label, Shape shape) {
      return param_input(label, std::move(shape), {.init = Init::uniform(1), .dtype = dtype});
    };
    const Tensor a = operand("a", {m, k}), b = operand("b", weights ? Shape{n, k} : Shape{k, n});
    const Tensor y = matmul(a, b, {.transpose_b = weights});
    output("output", slice(slice(y, 0, 0, 1), 1, 0, 1));
  });
}

}  // namespace jerboa::cli
