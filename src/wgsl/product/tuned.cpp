#include "wgsl/product/tuned.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "wgsl/fold.h"
#include "wgsl/product/problem.h"

namespace jerboa::wgsl {
namespace {

using Json = nlohmann::ordered_json;
using Kind = MatmulForm::Kind;

constexpr int version = 1;
constexpr const char* remedy = "run jerboa tune again, or remove the file";
constexpr std::pair<Kind, const char*> kinds[] = {{Kind::dots, "dots"},
                                                  {Kind::vectors, "vectors"},
                                                  {Kind::blocks, "blocks"},
                                                  {Kind::tiles, "tiles"},
                                                  {Kind::matrices, "matrices"}};
constexpr const char* quantised_kind = "quantised";

const char* name_of(Kind kind) {
  return std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& known) { return known.first == kind; })
      ->second;
}

DType multiplied_type(const TensorAccess& operand) {
  return operand.prologue.empty() ? operand.dtype : operand.prologue.back().dtype;
}

// Calls `visit` with the name and the value of each field that is written.
template <class Shape, class Visit>
void visit_shape(Shape& shape, Visit visit) {
  visit("rows", shape.rows);
  visit("inner", shape.inner);
  visit("columns", shape.columns);
  visit("a", shape.a);
  visit("b", shape.b);
  visit("mins", shape.mins);
  visit("transpose_a", shape.transpose_a);
  visit("transpose_b", shape.transpose_b);
  visit("products", shape.products);
}
template <class Form, class Visit>
void visit_form(Form& form, Visit visit) requires(std::is_same_v<std::remove_const_t<Form>, MatmulForm>) {
  visit("rows", form.rows);
  visit("columns", form.columns);
  visit("inner", form.inner);
  visit("part_rows", form.part_rows);
  visit("part_columns", form.part_columns);
  visit("padding", form.padding);
  visit("two_buffers", form.two_buffers);
  visit("unrolled", form.unrolled);
  visit("teams", form.teams);
  visit("fetches_ahead", form.fetches_ahead);
  visit("lanes", form.lanes);
  visit("chunks", form.chunks);
}
template <class Form, class Visit>
void visit_form(Form& form, Visit visit) requires(std::is_same_v<std::remove_const_t<Form>, QuantisedForm>) {
  visit("team", form.team);
  visit("teams", form.teams);
  visit("steps", form.steps);
  visit("results", form.results);
  visit("halves", form.halves);
}

struct Write {
  Json& json;
  template <class Value>
  void operator()(const char* key, const Value& value) const {
    if constexpr (std::is_same_v<Value, DType>)
      json[key] = name(value);
    else
      json[key] = value;
  }
};

// Reads fields, each of which must be there with a value of its type.
struct Read {
  const Json& json;

  void operator()(const char* key, std::string& value) const { value = text(key); }
  void operator()(const char* key, bool& value) const {
    if (!field(key).is_boolean()) refuse(key, "true or false");
    value = field(key).get<bool>();
  }
  void operator()(const char* key, DType& value) const {
    const std::optional<DType> known = dtype_from_name(text(key));
    if (!known) refuse(key, "the name of an element type");
    value = *known;
  }
  void operator()(const char* key, double& value) const {
    if (!field(key).is_number()) refuse(key, "a number");
    value = field(key).get<double>();
  }
  template <class Integer>
  void operator()(const char* key, Integer& value) const {
    constexpr std::int64_t most = std::int64_t{1} << 31;
    if (!field(key).is_number_integer() || field(key).get<std::int64_t>() < 0 || field(key).get<std::int64_t>() >= most)
      refuse(key, "a whole number");
    value = static_cast<Integer>(field(key).get<std::int64_t>());
  }

 private:
  const Json& field(const char* key) const {
    const auto found = json.find(key);
    if (found == json.end()) throw FileError(fmt::format("{} is missing", key));
    return *found;
  }
  std::string text(const char* key) const {
    const Json& value = field(key);
    if (!value.is_string()) refuse(key, "a string");
    return value.get<std::string>();
  }
  [[noreturn]] static void refuse(const char* key, const char* wanted) {
    throw FileError(fmt::format("{} is not {}", key, wanted));
  }
};

const Json& object_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) throw FileError(fmt::format("{} is not an object", key));
  return *found;
}

Json json_of(const ProductForm& form) {
  Json json;
  const auto* matmul = std::get_if<MatmulForm>(&form);
  json["kind"] = matmul != nullptr ? name_of(matmul->kind) : quantised_kind;
  std::visit([&](const auto& chosen) { visit_form(chosen, Write{json}); }, form);
  return json;
}

ProductForm form_from(const Json& json) {
  std::string kind;
  const Read read{json};
  read("kind", kind);
  if (kind == quantised_kind) {
    QuantisedForm form;
    visit_form(form, read);
    return form;
  }
  const auto* known =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& one) { return one.second == kind; });
  if (known == std::end(kinds)) throw FileError(fmt::format("there is no form named {}", in_quotes(kind)));
  MatmulForm form{.kind = known->first};
  visit_form(form, read);
  return form;
}

TunedFile::Product product_from(const Json& json) {
  if (!json.is_object()) throw FileError("not an object");
  TunedFile::Product product;
  visit_shape(product.shape, Read{object_at(json, "shape")});
  product.form = form_from(object_at(json, "form"));
  const Read read{json};
  read("seconds", product.seconds);
  read("untuned_seconds", product.untuned_seconds);
  return product;
}

const ProductForm* find(const Target& target, const MatmulProblem& problem) {
  const TunedForms* tuned = target.tuned.get();  // null: none were measured
  if (tuned == nullptr) return nullptr;
  const std::optional<ProductShape> shape = shape_of(problem);
  if (!shape) return nullptr;
  const auto found = tuned->forms.find(*shape);
  return found == tuned->forms.end() ? nullptr : &found->second;
}

// A shape has the types that are multiplied, but not whether a prologue gives them: then tiles hold f32.
bool suits_tiles(const Target& target, const MatmulProblem& problem, const MatmulForm& form) {
  return form.workgroup_bytes(problem.halves ? 2 : 4) <= target.workgroup_bytes && !(problem.halves && form.teams > 1);
}

}  // namespace

std::string ProductShape::str() const {
  std::string text = fmt::format("{}x{}x{} {}", rows, inner, columns, name(a));
  if (a != b) text += fmt::format(" x {}{}", name(b), mins ? " with minimums" : "");
  if (transpose_a) text += ", transposed a";
  if (transpose_b) text += ", transposed b";
  if (products > 1) text += fmt::format(", {} at once", products);
  return text;
}

std::optional<ProductShape> shape_of(const MatmulProblem& problem) {
  if (!problem.batch.empty() || problem.offsets != nullptr) return std::nullopt;
  return ProductShape{.a = multiplied_type(*problem.a),
                      .b = multiplied_type(*problem.b),
                      .mins = problem.mins != nullptr,
                      .transpose_a = !(problem.a_inner == Dim(1)),
                      .transpose_b = problem.b_inner == Dim(1) && !(problem.b_column == Dim(1)),
                      .rows = problem.rows.upper_bound(),
                      .inner = problem.inner.upper_bound(),
                      .columns = problem.columns.upper_bound(),
                      .products = problem.products};
}

std::vector<ProductShape> product_shapes(const Program& program, const Target& target) {
  std::vector<ProductShape> shapes;
  for (const FoldedPart& part : fold_kernels(program, target)) {
    const KernelSpec& kernel = program.cpu.kernels[static_cast<std::size_t>(part.kernel)];
    if (kernel.kind != KernelSpec::Kind::matmul) continue;
    const KernelWriter writer(kernel, target, memories_of(program, part.buffers), false, part.folded);
    const std::optional<ProductShape> shape = shape_of(MatmulProblem(writer));
    if (shape && std::find(shapes.begin(), shapes.end(), *shape) == shapes.end()) shapes.push_back(*shape);
  }
  return shapes;
}

std::string describe(const ProductForm& form) {
  if (const auto* quantised = std::get_if<QuantisedForm>(&form))
    return fmt::format("{} results, {} teams of {} threads{}", quantised->results, quantised->teams, quantised->team,
                       quantised->halves ? ", in f16" : "");
  const auto& matmul = std::get<MatmulForm>(form);
  std::string text = name_of(matmul.kind);
  if (matmul.kind == Kind::vectors)
    return text + fmt::format(", {} columns at once, {} threads each", matmul.part_columns, matmul.lanes);
  if (matmul.kind != Kind::tiles && matmul.kind != Kind::matrices) return text;
  text += fmt::format(" of {}x{}x{}, parts of {}x{}", matmul.rows, matmul.columns, matmul.inner, matmul.part_rows,
                      matmul.part_columns);
  if (matmul.two_buffers) text += ", two buffers";
  if (matmul.unrolled) text += ", unrolled";
  if (matmul.fetches_ahead) text += ", fetched ahead";
  if (matmul.teams > 1) text += fmt::format(", {} teams", matmul.teams);
  if (matmul.chunks > 1) text += fmt::format(", {} chunks", matmul.chunks);
  return text;
}

const MatmulForm* tuned_form(const Target& target, const MatmulProblem& problem) {
  const ProductForm* found = find(target, problem);
  const auto* form = found == nullptr ? nullptr : std::get_if<MatmulForm>(found);
  if (form == nullptr || (form->kind == Kind::vectors) != problem.suits_vectors) return nullptr;
  if (form->kind == Kind::matrices && !problem.suits_matrices) return nullptr;
  return form->kind == Kind::tiles && !suits_tiles(target, problem, *form) ? nullptr : form;
}

const QuantisedForm* tuned_quantised(const Target& target, const MatmulProblem& problem) {
  const ProductForm* found = find(target, problem);
  return found == nullptr ? nullptr : std::get_if<QuantisedForm>(found);
}

std::string to_json(const TunedFile& file) {
  Json json{{"jerboa_tuned_forms", version}, {"device", file.device}, {"driver", file.driver}};
  Json& products = json["products"] = Json::array();
  for (const TunedFile::Product& product : file.products) {
    Json shape;
    visit_shape(product.shape, Write{shape});
    products.push_back({{"shape", std::move(shape)},
                        {"form", json_of(product.form)},
                        {"seconds", product.seconds},
                        {"untuned_seconds", product.untuned_seconds}});
  }
  return json.dump(1) + "\n";
}

TunedFile parse_tuned_file(std::string_view text, const std::string& name) {
  const auto refuse = [&](const std::string& what) { throw FileError(fmt::format("{}: {}; {}", name, what, remedy)); };
  const Json json = [&] {
    try {
      return parse_ordered_json(text, name);
    } catch (const FileError& error) {
      throw FileError(fmt::format("{}; {}", error.what(), remedy));
    }
  }();
  if (!json.is_object() || !json.contains("jerboa_tuned_forms")) refuse("not a file written by jerboa tune");
  if (json["jerboa_tuned_forms"] != version)
    refuse(fmt::format("written by another version of jerboa (format {}, not {})",
                       shortened(json["jerboa_tuned_forms"].dump(), 40), version));
  TunedFile file;
  try {
    const Read read{json};
    read("device", file.device);
    read("driver", file.driver);
    if (!json.contains("products") || !json["products"].is_array()) throw FileError("products is not a list");
  } catch (const FileError& error) {
    refuse(error.what());
  }
  for (const Json& product : json["products"]) try {
      file.products.push_back(product_from(product));
    } catch (const FileError& error) {
      refuse(fmt::format("product {}: {}", file.products.size(), error.what()));
    }
  return file;
}

bool fits(const TunedFile::Product& product, const Target& target) {
  const std::vector<ProductForm> known = candidates(target, product.shape);
  return std::find(known.begin(), known.end(), product.form) != known.end();
}

void check_forms(const TunedFile& file, const Target& target, const std::string& name) {
  for (const TunedFile::Product& product : file.products)
    if (!fits(product, target))
      throw FileError(fmt::format("{}: there is no form {} for a product of {}; {}", name, describe(product.form),
                                  product.shape.str(), remedy));
}

std::shared_ptr<const TunedForms> forms_of(const TunedFile& file, const Target& target) {
  std::map<ProductShape, ProductForm> forms;
  for (const TunedFile::Product& product : file.products)
    if (fits(product, target)) forms.emplace(product.shape, product.form);
  return std::make_shared<TunedForms>(std::move(forms));
}

}  // namespace jerboa::wgsl
