#include "text/json_view.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa {

bool JsonView::is_object() const { return node_->is_object(); }
bool JsonView::is_array() const { return node_->is_array(); }
bool JsonView::is_string() const { return node_->is_string(); }

bool JsonView::has(std::string_view key) const {
  if (!node_->is_object()) return false;
  const auto found = node_->find(key);
  return found != node_->end() && !found->is_null();
}

JsonView JsonView::at(std::string_view key) const {
  if (!node_->is_object()) fail(fmt::format("expected an object, found {}", node_->type_name()));
  const auto found = node_->find(key);
  if (found == node_->end()) fail(fmt::format("\"{}\" is missing", key));
  return {*found, fmt::format("{}.{}", path_, key)};
}

JsonView JsonView::at(std::size_t index) const {
  if (index >= size()) fail(fmt::format("expected at least {} elements, found {}", index + 1, size()));
  return {(*node_)[index], fmt::format("{}[{}]", path_, index)};
}

std::size_t JsonView::size() const {
  if (!node_->is_array()) fail(fmt::format("expected an array, found {}", node_->type_name()));
  return node_->size();
}

std::string JsonView::string() const {
  if (!node_->is_string()) fail(fmt::format("expected a string, found {}", node_->type_name()));
  return node_->get<std::string>();
}

std::int64_t JsonView::integer() const {
  const auto value = json_integer(*node_);
  if (!value) fail(fmt::format("expected a 64-bit integer, found {}", shortened(node_->dump(), 40)));
  return *value;
}

std::string JsonView::string(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : std::string(fallback);
}

bool JsonView::boolean(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const JsonView value = at(key);
  if (!value.node_->is_boolean()) value.fail(fmt::format("expected true or false, found {}", value.node_->type_name()));
  return value.node_->get<bool>();
}

std::int64_t JsonView::integer(std::string_view key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

void JsonView::fail(std::string_view message) const { throw FileError(fmt::format("{}: {}", path_, message)); }

}  // namespace jerboa
