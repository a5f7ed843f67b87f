#include "wgsl/tuning/tuned_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::wgsl {
namespace {

using Json = nlohmann::ordered_json;
constexpr int version = 2;
constexpr const char* remedy = "run jerboa tune again, or remove the file";

// The names of the values of an enum.
template <class Value>
struct Names;
template <>
struct Names<MatmulForm::Kind> {
  using Kind = MatmulForm::Kind;
  static constexpr std::pair<Kind, const char*> all[] = {{Kind::dots, "dots"},
                                                         {Kind::vectors, "vectors"},
                                                         {Kind::blocks, "blocks"},
                                                         {Kind::tiles, "tiles"},
                                                         {Kind::matrices, "matrices"}};
};
template <>
struct Names<AttentionForm::Kind> {
  using Kind = AttentionForm::Kind;
  static constexpr std::pair<Kind, const char*> all[] = {{Kind::matrices, "matrices"},
                                                         {Kind::rows, "rows"},
                                                         {Kind::stream, "stream"},
                                                         {Kind::decode, "decode"},
                                                         {Kind::tiles, "tiles"}};
};
template <>
struct Names<AttentionPart> {
  static constexpr std::pair<AttentionPart, const char*> all[] = {
      {AttentionPart::forward, "forward"}, {AttentionPart::dq, "dq"}, {AttentionPart::dkv, "dkv"}};
};
template <class Value>
concept Named = requires {
  Names<Value>::all;
};

constexpr const char* quantised_kind = "quantised";

// Calls `visit` with the name and the value of each field that is written.
template <class Visit>
void visit_fields(auto& shape,
                  Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(shape)>, ProductShape>) {
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
template <class Visit>
void visit_fields(auto& form, Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(form)>, MatmulForm>) {
  visit("kind", form.kind);
  visit("rows", form.rows);
  visit("columns", form.columns);
  visit("inner", form.inner);
  visit("part_rows", form.part_rows);
  visit("part_columns", form.part_columns);
  visit("padding", form.padding);
  visit("two_buffers", form.two_buffers);
  visit("unrolled", form.unrolled);
  visit("teams", form.teams);
  visit("ahead", form.ahead);
  visit("lanes", form.lanes);
  visit("chunks", form.chunks);
}
template <class Visit>
void visit_fields(auto& form,
                  Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(form)>, QuantisedForm>) {
  visit("team", form.team);
  visit("teams", form.teams);
  visit("steps", form.steps);
  visit("results", form.results);
  visit("halves", form.halves);
}
template <class Visit>
void visit_fields(auto& shape,
                  Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(shape)>, AttentionShape>) {
  visit("part", shape.part);
  visit("dtype", shape.dtype);
  visit("key_dtype", shape.key_dtype);
  visit("batch", shape.batch);
  visit("heads", shape.heads);
  visit("key_heads", shape.key_heads);
  visit("time", shape.time);
  visit("keys", shape.keys);
  visit("size", shape.size);
  visit("value_size", shape.value_size);
  visit("causal", shape.causal);
  visit("cached", shape.cached);
  visit("page_size", shape.page_size);
}
template <class Visit>
void visit_fields(auto& form,
                  Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(form)>, AttentionForm>) {
  visit("kind", form.kind);
  visit("blocks", form.matrices.blocks);
  visit("subgroups", form.matrices.subgroups);
  visit("matrix_tile_rows", form.matrices.tile_rows);
  visit("lane_columns", form.matrices.lane_columns);
  visit("fetches_ahead", form.matrices.fetches_ahead);
  visit("barriers", form.matrices.barriers);
  visit("tile_rows", form.tile_rows);
  visit("depth", form.depth);
  visit("queries", form.queries);
  visit("keys_at_a_time", form.keys_at_a_time);
  visit("parts", form.parts);
}
template <class Visit>
void visit_fields(auto& shape, Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(shape)>, RowShape>) {
  visit("rows", shape.rows);
  visit("columns", shape.columns);
}
template <class Visit>
void visit_fields(auto& form, Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(form)>, RowForm>) {
  visit("lanes", form.lanes);
}
template <class Visit>
void visit_fields(auto& shape,
                  Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(shape)>, ColumnShape>) {
  visit("columns", shape.columns);
  visit("rows", shape.rows);
  visit("width", shape.width);
}
template <class Visit>
void visit_fields(auto& form, Visit visit) requires(std::is_same_v<std::remove_cvref_t<decltype(form)>, ColumnForm>) {
  visit("kept_lanes", form.kept_lanes);
  visit("chunks", form.chunks);
}

struct Write {
  Json& json;
  template <class Value>
  void operator()(const char* key, const Value& value) const {
    if constexpr (std::is_same_v<Value, DType>)
      json[key] = name(value);
    else if constexpr (Named<Value>)
      json[key] = std::find_if(std::begin(Names<Value>::all), std::end(Names<Value>::all), [&](const auto& known) {
                    return known.first == value;
                  })->second;
    else
      json[key] = value;
  }
};

// Reads fields; each must be present with a value of its type.
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
  template <Named Value>
  void operator()(const char* key, Value& value) const {
    const std::string wanted = text(key);
    const auto& all = Names<Value>::all;
    const auto* known =
        std::find_if(std::begin(all), std::end(all), [&](const auto& one) { return one.second == wanted; });
    if (known == std::end(all)) throw FileError(fmt::format("there is no {} named {}", key, in_quotes(wanted)));
    value = known->first;
  }
  template <class Integer>
  void operator()(const char* key, Integer& value) const requires(std::is_integral_v<Integer>) {
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

// A kind of kernel in the file: the name of its shapes, and how a form is read.
template <class Form>
KernelForm read_form(const Json& json) {
  Form form;
  visit_fields(form, Read{json});
  return form;
}
template <class Shape>
struct Kind;
template <>
struct Kind<ProductShape> {
  static constexpr const char* name = "product";
  static KernelForm form(const Json& json) {
    const auto kind = json.find("kind");
    return kind != json.end() && *kind == quantised_kind ? read_form<QuantisedForm>(json) : read_form<MatmulForm>(json);
  }
};
template <>
struct Kind<AttentionShape> {
  static constexpr const char* name = "attention";
  static KernelForm form(const Json& json) { return read_form<AttentionForm>(json); }
};
template <>
struct Kind<RowShape> {
  static constexpr const char* name = "rows";
  static KernelForm form(const Json& json) { return read_form<RowForm>(json); }
};
template <>
struct Kind<ColumnShape> {
  static constexpr const char* name = "columns";
  static KernelForm form(const Json& json) { return read_form<ColumnForm>(json); }
};

Json json_of(const TunedFile::Kernel& kernel) {
  Json json, shape, form;
  std::visit(
      [&](const auto& one) {
        json["kind"] = Kind<std::remove_cvref_t<decltype(one)>>::name;
        visit_fields(one, Write{shape});
      },
      kernel.shape);
  if (std::holds_alternative<QuantisedForm>(kernel.form)) form["kind"] = quantised_kind;
  std::visit([&](const auto& one) { visit_fields(one, Write{form}); }, kernel.form);
  json["shape"] = std::move(shape);
  json["form"] = std::move(form);
  json["seconds"] = kernel.seconds;
  json["untuned_seconds"] = kernel.untuned_seconds;
  return json;
}

// Reads the kernel if it is of this kind, and returns whether it is.
template <class Shape>
bool read_kernel(const Json& json, const std::string& kind, TunedFile::Kernel& kernel) {
  if (kind != Kind<Shape>::name) return false;
  Shape shape;
  visit_fields(shape, Read{object_at(json, "shape")});
  kernel.shape = shape;
  kernel.form = Kind<Shape>::form(object_at(json, "form"));
  return true;
}

TunedFile::Kernel kernel_from(const Json& json) {
  if (!json.is_object()) throw FileError("not an object");
  const Read read{json};
  std::string kind;
  read("kind", kind);
  TunedFile::Kernel kernel;
  if (!read_kernel<ProductShape>(json, kind, kernel) && !read_kernel<AttentionShape>(json, kind, kernel) &&
      !read_kernel<RowShape>(json, kind, kernel) && !read_kernel<ColumnShape>(json, kind, kernel))
    throw FileError(fmt::format("there is no kind of kernel named {}", in_quotes(kind)));
  read("seconds", kernel.seconds);
  read("untuned_seconds", kernel.untuned_seconds);
  return kernel;
}

}  // namespace

std::string to_json(const TunedFile& file) {
  Json json{{"jerboa_tuned_forms", version}, {"device", file.device}, {"driver", file.driver}};
  Json& kernels = json["kernels"] = Json::array();
  for (const TunedFile::Kernel& kernel : file.kernels) kernels.push_back(json_of(kernel));
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
    if (!json.contains("kernels") || !json["kernels"].is_array()) throw FileError("kernels is not a list");
  } catch (const FileError& error) {
    refuse(error.what());
  }
  for (const Json& kernel : json["kernels"]) try {
      file.kernels.push_back(kernel_from(kernel));
    } catch (const FileError& error) {
      refuse(fmt::format("kernel {}: {}", file.kernels.size(), error.what()));
    }
  return file;
}

bool fits(const TunedFile::Kernel& kernel, const Target& target) {
  const std::vector<KernelForm> known = candidates(target, kernel.shape);
  return std::find(known.begin(), known.end(), kernel.form) != known.end();
}

void check_forms(const TunedFile& file, const Target& target, const std::string& name) {
  for (const TunedFile::Kernel& kernel : file.kernels)
    if (!fits(kernel, target))
      throw FileError(
          fmt::format("{}: there is no form {} for {}; {}", name, describe(kernel.form), str(kernel.shape), remedy));
}

std::shared_ptr<const FormTable> forms_of(const TunedFile& file, const Target& target) {
  FormTable::Forms forms;
  for (const TunedFile::Kernel& kernel : file.kernels)
    if (fits(kernel, target)) forms.emplace(kernel.shape, kernel.form);
  return std::make_shared<FormTable>(std::move(forms));
}

}  // namespace jerboa::wgsl
