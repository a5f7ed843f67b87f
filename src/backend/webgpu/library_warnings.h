#pragma once

namespace jerboa::webgpu {

/// While this object lives, warnings that the WebGPU library and the Vulkan loader print to standard error are held
/// back: they are about drivers, not about the user's program, and the library offers no callback for messages before
/// there is a device. With JERBOA_DEBUG set they are printed afterwards; everything else is always printed.
class LibraryWarnings {
 public:
  LibraryWarnings();
  ~LibraryWarnings();
  LibraryWarnings(const LibraryWarnings&) = delete;
  LibraryWarnings& operator=(const LibraryWarnings&) = delete;

 private:
  int saved_ = -1;     // standard error
  int captured_ = -1;  // an in-memory file in its place
};

}  // namespace jerboa::webgpu
