// Whatever the files of sentence-transformers contain, they are read or refused with an Error. An input is modules.json
// and the configs of a pooling, of a dense layer, of the limits and of the prompts, separated by NUL bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <jerboa/base/error.h>

#include "language/embedding_modules.h"

namespace {

using namespace jerboa;
namespace fs = std::filesystem;

constexpr std::array names{"modules.json", "1_Pooling/config.json", "2_Dense/config.json", "sentence_bert_config.json",
                           "config_sentence_transformers.json"};

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("jerboa-embedding-modules-" + std::to_string(getpid()))) {
    for (const char* module : {"1_Pooling", "2_Dense"}) fs::create_directories(path_ / module);
    const std::vector<float> values(8);
    write_safetensors(path_ / "2_Dense/model.safetensors",
                      std::vector{view_of("linear.weight", {2, 4}, std::span(values)),
                                  view_of("linear.bias", {2}, std::span(values).first(2))});
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& write(std::string_view input) const {
    for (const char* name : names) {
      const std::size_t end = std::min(input.find('\0'), input.size());
      if (end == 0)
        fs::remove(path_ / name);
      else
        std::ofstream(path_ / name, std::ios::binary) << input.substr(0, end);
      input.remove_prefix(std::min(end + 1, input.size()));
    }
    return path_;
  }

 private:
  fs::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  try {
    detail::read_embedding_modules(folder.write({reinterpret_cast<const char*>(data), size}));
  } catch (const Error&) {
  }
  return 0;
}
