#pragma once

#include <stdexcept>
#include <string>

namespace jerboa {

/// Every failure that Jerboa reports is an Error; catch a derived type to handle one kind. A message names the object,
/// the place and, if there is one, the remedy.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes or types that do not fit an operation.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A mistake in building, tracing or differentiating a graph.
class GraphError : public Error {
 public:
  using Error::Error;
};

/// A call that is wrong regardless of the data: an unknown name, a missing input, an option out of range.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be read or written, or whose content is malformed.
class FileError : public Error {
 public:
  using Error::Error;
};

/// A device that is missing or that failed.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// The device is gone: its driver crashed or was reset. A session can be built again on another device.
class DeviceLostError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The device does not have enough memory for a tensor.
class OutOfMemoryError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The host itself does not have enough memory.
class HostMemoryError : public OutOfMemoryError {
 public:
  using OutOfMemoryError::OutOfMemoryError;
};

/// A tensor that holds NaN or infinity, found by a finite check (SessionOptions::check_finite).
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

/// A kernel that the device's shader compiler rejects.
class ShaderError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// The user's source line that a tensor, and therefore an error, comes from.
struct CallSite {
  const char* file = "";
  int line = 0;

  /// "model.cpp:41", or "" if unknown.
  std::string str() const;
};

}  // namespace jerboa
