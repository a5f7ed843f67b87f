#pragma once

#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <string_view>

#include <jerboa/base/error.h>

namespace jerboa {

/// Reads the fields of one protobuf message, in the order of the file.
///
///     ProtobufReader reader(bytes, "tokenizer.model");
///     while (reader.next()) { if (reader.field() == 1) use(reader.bytes()); }
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field_ = static_cast<std::uint32_t>(tag >> 3);
    number_ = 0;
    bytes_ = {};
    switch (tag & 7) {
      case 0: number_ = varint(); break;
      case 1: bytes_ = take(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: bytes_ = take(4); break;
      default: fail();
    }
    return true;
  }

  std::uint32_t field() const { return field_; }
  std::uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }
  float real() const {
    float value = 0;
    if (bytes_.size() != sizeof value) fail();
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(std::uint64_t size) {
    if (size > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  [[noreturn]] void fail() const { throw FileError(fmt::format("{}: not a sentencepiece model", name_)); }

  std::string_view rest_;
  std::string_view name_;
  std::uint32_t field_ = 0;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace jerboa
