#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <jerboa/frontend/compile.h>

namespace jerboa {

struct LanguageModelOptions {
  std::optional<Device> device = {};  ///< by default Device::best()
  int context = 0;  ///< the maximum length of a sequence in tokens; 0: the model's limit, but at most 4096
  int chunk = 0;    ///< prompt tokens processed at once; 0: a number that suits the device
  /// The type that matrices are stored in: f32, f16, bf16, or i8 and i4, quantised; by default the file's type.
  std::optional<DType> weights = {};
  /// The precision of prompts, and of steps of more than a few texts. By default mixed_f16 for weights in f16 on a GPU
  /// that multiplies f16 matrices, otherwise full: the range of f16 need not hold the activations of models whose
  /// weights are bf16. Steps of a few texts are memory-bound, so they are always computed in full precision.
  std::optional<Precision> precision = {};
  /// The most sequences computed at once; 0: 64 on a GPU, 16 on the CPU, but fewer if a model has large recurrent
  /// states.
  int sequences = 0;
  /// The number of tokens that the key/value cache holds, for all sequences together and texts kept for reuse; 0:
  /// enough for one sequence of the whole context, or for more if they fit in 256 MiB, or 1 GiB on a GPU, beside
  /// recurrent states.
  std::int64_t cache_tokens = 0;
  int block = 0;  ///< tokens per block of the cache, the unit in which texts share it; 0: 32
  /// The type of the cache, f32, f16 or i8; by default f16 on a GPU with weights in f16, otherwise f32.
  std::optional<DType> cache = {};
  /// Whether the device draws the tokens of sampled texts, so that no logits are read back, or the host: by default the
  /// device if it is a GPU. The most likely token is always found on the device.
  std::optional<bool> device_sampling = {};
  /// Whether a step is submitted to the device before the previous one's tokens are read; by default on a GPU.
  std::optional<bool> pipelined = {};
  /// Every token is computed by one program, whose shape does not depend on what else is in the batch or in the cache,
  /// so that a text is bit-identical whatever runs beside it. Slower; drafts have no effect.
  bool deterministic = false;
  /// Called before anything is allocated, with the bytes of all weights, caches and recurrent states; it may throw.
  std::function<void(std::int64_t bytes)> before_allocation = {};
  /// Called while weights are uploaded to the device, with the bytes so far and the total; it may throw to stop.
  std::function<void(std::int64_t done, std::int64_t bytes)> on_weights = {};
};

}  // namespace jerboa
