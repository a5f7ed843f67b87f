#pragma once

#include <compare>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "wgsl/product/form.h"
#include "wgsl/product/quantised.h"

namespace jerboa::wgsl {

/// What a form is chosen by: the sizes of a product, at the symbols' bounds, and how its operands are stored. What is
/// computed before and after it does not count.
struct ProductShape {
  DType a = DType::f32, b = DType::f32;  ///< as they are multiplied; of quantised weights, as they are stored
  bool mins = false;                     ///< of quantised weights
  bool transpose_a = false;              ///< stored as [inner, rows]
  bool transpose_b = false;              ///< stored as [columns, inner]
  std::int64_t rows = 0, inner = 0, columns = 0;
  int products = 1;  ///< that are computed at once (MatmulProblem)

  auto operator<=>(const ProductShape&) const = default;
  bool is_quantised() const { return b == DType::i8 || b == DType::i4; }
  /// "1024x256x768 f32, transposed b"
  std::string str() const;
};

/// The shape of a problem; none for batches of products, which are not tuned.
std::optional<ProductShape> shape_of(const MatmulProblem& problem);

/// The shapes of a program's products, each once, in the order in which they are first computed.
std::vector<ProductShape> product_shapes(const Program& program, const Target& target);

using ProductForm = std::variant<MatmulForm, QuantisedForm>;
/// "tiles of 64x64x16, parts of 8x4, two buffers"
std::string describe(const ProductForm& form);

/// The forms that are worth measuring for products of this shape.
std::vector<ProductForm> candidates(const Target& target, const ProductShape& shape);

/// What Target::tuned is.
struct TunedForms {
  explicit TunedForms(std::map<ProductShape, ProductForm> measured) : forms(std::move(measured)) {}
  std::map<ProductShape, ProductForm> forms;
};

/// The form that was tuned for a problem; null if there is none, or if the problem does not suit it.
const MatmulForm* tuned_form(const Target& target, const MatmulProblem& problem);
const QuantisedForm* tuned_quantised(const Target& target, const MatmulProblem& problem);

/// A file of `jerboa tune`.
struct TunedFile {
  std::string device, driver;  ///< AdapterInfo::name and driver
  struct Product {
    ProductShape shape;
    ProductForm form;
    double seconds = 0, untuned_seconds = 0;  ///< of this form, and of the one that is chosen without the file
    bool operator==(const Product&) const = default;
  };
  std::vector<Product> products;
  bool operator==(const TunedFile&) const = default;
};
std::string to_json(const TunedFile& file);
/// Throws FileError that begins with `name` and says what is wrong.
TunedFile parse_tuned_file(std::string_view text, const std::string& name);
/// Whether the form is among the candidates for its shape, which depend on the device's limits, on how many workgroups
/// it was found to run at once and on the release.
bool fits(const TunedFile::Product& product, const Target& target);
/// Throws FileError that begins with `name` if a form does not fit.
void check_forms(const TunedFile& file, const Target& target, const std::string& name);
/// Those of the file's forms that fit.
std::shared_ptr<const TunedForms> forms_of(const TunedFile& file, const Target& target);

}  // namespace jerboa::wgsl
