#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <jerboa/base/dtype.h>
#include <jerboa/runtime/device.h>

namespace jerboa {

struct CalibrationOptions {
  std::optional<Device> device = {};  ///< reads the text; by default Device::best()
  int tokens = 4096;                  ///< read at most this many of the text
  int window = 512;                   ///< that the model sees at once
  /// Called before each matrix that is calibrated, with its number and their count.
  std::function<void(std::size_t number, std::size_t count)> on_progress = {};
};

/// The same as models::quantise_folder for a decoder that reads a text while it is quantised: weights are rounded to
/// preserve their products on that text, rather than the weights themselves. It costs a fraction of the perplexity that
/// int4 otherwise does. Any text of the kind that the model is for will do, of a few thousand tokens.
void quantise_calibrated(const std::filesystem::path& from, const std::filesystem::path& to, DType weights,
                         std::string_view text, const CalibrationOptions& options = {});

struct WrittenTextOptions {
  std::optional<Device> device = {};  ///< writes the text; by default Device::best()
  int texts = 48;                     ///< how many to write, each of up to 268 tokens
  std::uint64_t seed = 0;             ///< the same seed gives the same text on the same device
};

/// A calibration text of the kind that the model is for, because the model writes it itself: it draws texts, or
/// conversations, with the users' questions, if it has a chat template.
std::string write_calibration_text(const std::filesystem::path& model, const WrittenTextOptions& options = {});

}  // namespace jerboa
