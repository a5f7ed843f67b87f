#pragma once

#include <map>

#include <jerboa/backend/webgpu.h>
#include <jerboa/runtime/device.h>

namespace jerboa::test {

/// A device that all tests of a process share, because compiling its pipelines takes long: one per key. `options_of`
/// gives the options of a key; memory is filled with a sentinel, whatever they say.
template <class Key, class OptionsOf>
const Device& shared_device(const Key& key, OptionsOf options_of) {
  static std::map<Key, Device> devices;
  const auto found = devices.find(key);
  if (found != devices.end()) return found->second;
  WebGpuOptions options = options_of(key);
  options.sentinel = 7e8F;
  return devices.emplace(key, Device::webgpu(options)).first->second;
}

}  // namespace jerboa::test
