#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <jerboa/models/config.h>

namespace jerboa::cli {

struct LlamaPeerOptions {
  std::filesystem::path libraries;  ///< the folder of libllama, libggml and its backends, as in npm's node-llama-cpp
  std::string weights = "f16";      ///< f32, f16, int8 (Q8_0) or int4 (Q4_0)
  int threads = 0;                  ///< 0: one per core
  int prompt = 512, tokens = 64;
};

/// Runs llama.cpp in this process, with random weights in the shapes of a Llama.
class LlamaPeer {
 public:
  /// Throws Error if the libraries are missing or the config is not a Llama's.
  LlamaPeer(const models::Config& config, const LlamaPeerOptions& options);
  ~LlamaPeer();

  /// Seconds of prefill from an empty cache, and seconds per token after it, with greedy decoding.
  double feed_prompt();
  double decode(int tokens);

 private:
  struct Library;
  struct Loaded;
  std::unique_ptr<Loaded> loaded_;
};

/// Where npm installs the libraries in the current folder.
std::filesystem::path default_llama_libraries();

}  // namespace jerboa::cli
