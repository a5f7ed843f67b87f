#pragma once

#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <jerboa/base/fields.h>
#include <jerboa/ops/tensor.h>

namespace jerboa {

namespace detail {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
concept HasFields = requires(T& t) {
  t.for_each_field([](const char*, auto&) {});
};

template <class T>
concept IsRange = requires(T& t) {
  t.begin();
  t.end();
};

}  // namespace detail

/// Calls visit(path, parameter) for every parameter of a model, in the order of JERBOA_FIELDS; elements of a vector
/// are numbered: "blocks.0.qkv.weight".
template <class Model, class Visit>
void for_each_parameter(Model& model, Visit&& visit, const std::string& path = "") {
  using Plain = std::remove_cv_t<Model>;
  if constexpr (std::is_same_v<Plain, Parameter>) {
    visit(path, model);
  } else if constexpr (detail::IsOptional<Plain>::value) {
    if (model) for_each_parameter(*model, visit, path);
  } else if constexpr (detail::HasFields<Model>) {
    model.for_each_field([&](const char* name, auto& field) {
      for_each_parameter(field, visit, path.empty() ? name : path + "." + name);
    });
  } else if constexpr (detail::IsRange<Model>) {
    std::size_t number = 0;
    for (auto& item : model)
      for_each_parameter(item, visit, path + (path.empty() ? "" : ".") + std::to_string(number++));
  } else {
    static_assert(detail::HasFields<Model>,
                  "a field in JERBOA_FIELDS must be a parameter, a module, or a list of them");
  }
}

namespace detail {
[[noreturn]] void throw_listed_twice(const std::string& path, const Parameter& parameter);
}  // namespace detail

/// Gives every parameter its path, which is its name from then on. A Trainer does this for its own copy of a model.
/// Throws UsageError if JERBOA_FIELDS lists a field twice.
template <class Model>
void assign_paths(Model& model) {
  std::set<std::string> paths;
  for_each_parameter(model, [&](const std::string& path, Parameter& parameter) {
    if (!paths.insert(path).second) detail::throw_listed_twice(path, parameter);
    parameter.path = path;
  });
}

/// The total number of elements of a model's parameters.
template <class Model>
std::int64_t count_parameters(const Model& model) {
  std::int64_t total = 0;
  for_each_parameter(
      model, [&](const std::string&, const Parameter& parameter) { total += element_count(parameter.shape).value(); });
  return total;
}

}  // namespace jerboa
