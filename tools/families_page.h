#pragma once

#include <filesystem>
#include <string>

namespace jerboa {

/// docs/families.md: the table of families, with what each needs beyond a Llama, found by tracing the goldens' configs.
std::string families_page(const std::filesystem::path& source);

}  // namespace jerboa
