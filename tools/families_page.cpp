#include "families_page.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa {
namespace {

using models::CacheKind;
using models::Config;
using models::Family;

std::vector<std::string_view> graphs_of(const Family& family) {
  std::vector<std::string_view> names;
  if (family.graphs.decoder) names.emplace_back("decoder");
  if (family.graphs.encoder) names.emplace_back("encoder");
  if (family.graphs.tower) names.emplace_back("tower");
  if (family.graphs.pooler) names.emplace_back("pooler");
  return names;
}

std::set<std::string_view> ops_of(const Family& family, const Config& config) {
  const Graph graph = trace([&] {
    const models::GraphInputs inputs{.tensors = {{"ids", tensor_input("ids", {2, 8}, DType::i32)}}};
    const auto build = family.graphs.decoder ? family.graphs.decoder : family.graphs.encoder;
    for (const auto& [name, tensor] : build(config, inputs)) output(name, tensor);
  });
  std::set<std::string_view> ops;
  for (const Node& node : graph.nodes) ops.insert(name(node.op));
  return ops;
}

std::string_view name_of(CacheKind kind) {
  switch (kind) {
    case CacheKind::kv: return "keys and values";
    case CacheKind::ring: return "a window's keys and values";
    case CacheKind::latent: return "latent vectors";
    case CacheKind::state: return "recurrent states";
  }
  return {};
}

std::set<std::string_view> caches_of(const Family& family, const Config& config) {
  std::set<std::string_view> kinds;
  if (family.graphs.decoder)
    for (const auto& spec : models::cache_specs(config, {.capacity = 4096, .ring = true}))
      kinds.insert(name_of(spec.kind));
  return kinds;
}

}  // namespace

std::string families_page(const std::filesystem::path& source) {
  const auto config_of = [&](std::string folder) {
    std::replace(folder.begin(), folder.end(), '-', '_');
    return Config::open(source / "tests/data/goldens" / folder);
  };
  const auto usual = ops_of(models::family_of(config_of("llama")), config_of("llama"));
  std::string page =
      "# Model families\n\n<!-- Generated: see docs/development.md. -->\n\n"
      "What can be loaded: the values of `model_type` in config.json, the graphs that a family has, what its layers "
      "keep "
      "between runs, and the ops that it needs besides Llama's. [adding-a-model-family.md](adding-a-model-family.md) "
      "shows how to add one.\n\n| model_type | graphs | caches | ops besides Llama's |\n|---|---|---|---|\n";
  for (const Family& family : models::families()) {
    const Config config = config_of(std::string(family.model_type));
    std::vector<std::string> ops;
    for (const std::string_view op : ops_of(family, config))
      if (!usual.contains(op)) ops.push_back(fmt::format("`{}`", op));
    page += fmt::format("| {} | {} | {} | {} |\n", family.model_type, fmt::join(graphs_of(family), ", "),
                        fmt::join(caches_of(family, config), ", "), fmt::join(ops, " "));
  }
  return page;
}

}  // namespace jerboa
