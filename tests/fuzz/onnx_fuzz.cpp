// Whatever an ONNX file of an npm package says, its nodes and constants are read, or refused with a FileError.
#include <cstddef>
#include <cstdint>
#include <span>

#include <jerboa/base/error.h>

#include "cli/onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace jerboa;
  try {
    const cli::OnnxGraph graph = cli::read_onnx(std::as_bytes(std::span(data, size)), "model.onnx");
    for (const auto& [name, tensor] : graph.constants) {
      try {
        cli::onnx_values(tensor, name);
      } catch (const FileError&) {
      }
    }
  } catch (const FileError&) {
  }
  return 0;
}
