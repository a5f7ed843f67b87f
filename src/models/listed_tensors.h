#pragma once

#include <fmt/format.h>
#include <map>
#include <string>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/io/tensor_source.h>

namespace jerboa::models {

/// A source of tensors that are listed by name when it is constructed. An Item is what the source knows about one of
/// them, including its entry.
template <class Item>
class ListedTensors : public TensorSource {
 public:
  std::vector<std::string> names() const final {
    std::vector<std::string> names;
    for (const auto& [name, item] : items_) names.push_back(name);
    return names;
  }
  bool contains(std::string_view name) const final { return items_.contains(name); }
  const TensorEntry& entry(std::string_view name) const final { return find(name).entry; }

 protected:
  void list(const std::string& name, Item item) { items_.emplace(name, std::move(item)); }
  const Item& find(std::string_view name) const {
    if (const auto found = items_.find(name); found != items_.end()) return found->second;
    throw UsageError(fmt::format("{}: there is no tensor \"{}\"", path().string(), name));
  }

 private:
  std::map<std::string, Item, std::less<>> items_;
};

}  // namespace jerboa::models
