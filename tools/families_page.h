#pragma once

#include <filesystem>
#include <string>

namespace jerboa {

/// The content of docs/families.md: the table of families, with the additional parts that each needs beyond a Llama,
/// found by tracing the goldens' configs.
std::string families_page(const std::filesystem::path& source);

}  // namespace jerboa
