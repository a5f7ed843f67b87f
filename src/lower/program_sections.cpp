#include "lower/program_sections.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/crc32.h"

namespace jerboa::detail {
namespace {

constexpr std::string_view magic = "JERBOAPF", magic_before = "JERBOAP";
constexpr std::size_t header_bytes = 24, row_bytes = 32, alignment = 8;
constexpr std::uint32_t required_flag = 1;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Numbers are little-endian.
void put(std::string& text, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xffu));
}

std::uint64_t get(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(text[at + i]);
  return value;
}

std::uint32_t to_number(const HostVersion& version) {
  return static_cast<std::uint32_t>((version.major << 16) | (version.minor << 8) | version.patch);
}

HostVersion to_version(std::uint32_t number) {
  return {static_cast<int>(number >> 16), static_cast<int>(number >> 8 & 0xffu), static_cast<int>(number & 0xffu)};
}

void check_format(std::string_view file) {
  if (file.size() > magic.size() && file.starts_with(magic_before) &&
      std::isdigit(static_cast<unsigned char>(file[magic_before.size()])) != 0)
    throw FileError(fmt::format("a program file of format {}, but Jerboa {} reads format {}: export it again",
                                file[magic_before.size()], to_string(host_version), program_format));
  if (!file.starts_with(magic)) throw FileError("not a Jerboa program file");
  if (file.size() < header_bytes) throw FileError("the header is truncated");
  if (const auto format = get(file, 8, 4); format != program_format)
    throw FileError(fmt::format("a program file of format {}, but Jerboa {} reads format {}: {}", format,
                                to_string(host_version), program_format,
                                format > program_format ? "use a later Jerboa" : "export it again"));
  if (const HostVersion least = to_version(static_cast<std::uint32_t>(get(file, 12, 4))); least > host_version)
    throw FileError(fmt::format("needs Jerboa {} or later, but this is {}", to_string(least), to_string(host_version)));
}

bool is_known(std::string_view kind) {
  constexpr auto known = std::to_array({section::requirements, section::programs, section::cpu, section::gpu,
                                        section::indices, section::rates, section::checks, section::data});
  return std::find(known.begin(), known.end(), kind) != known.end();
}

// Printable characters only.
std::string printable(std::string_view kind) {
  std::string text;
  for (const char c : kind) text.push_back(std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?');
  return text;
}

}  // namespace

std::string to_string(const HostVersion& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

std::string write_sections(const std::vector<Section>& sections, const HostVersion& least_host) {
  std::string table;
  std::size_t place = header_bytes + sections.size() * row_bytes;
  for (const Section& section : sections) {
    place = aligned(place);
    table += section.kind;
    put(table, section.required ? required_flag : 0, 4);
    put(table, place, 8);
    put(table, section.bytes.size(), 8);
    put(table, crc32(section.bytes), 4);
    put(table, 0, 4);
    place += section.bytes.size();
  }
  std::string file(magic);
  put(file, program_format, 4);
  put(file, to_number(least_host), 4);
  put(file, sections.size(), 4);
  put(file, crc32(file + table), 4);
  file += table;
  for (const Section& section : sections) {
    file.resize(aligned(file.size()), '\0');
    file += section.bytes;
  }
  return file;
}

std::vector<Section> read_sections(std::string_view file) {
  check_format(file);
  const std::uint64_t count = get(file, 16, 4);
  if (count > (file.size() - header_bytes) / row_bytes) throw FileError("the table of sections is truncated");
  const std::string_view table = file.substr(header_bytes, count * row_bytes);
  if (crc32(std::string(file.substr(0, header_bytes - 4)) + std::string(table)) != get(file, header_bytes - 4, 4))
    throw FileError("the header is damaged: its checksum does not match");
  std::vector<Section> sections;
  std::uint64_t end = header_bytes + table.size();
  for (std::size_t at = 0; at < table.size(); at += row_bytes) {
    Section entry;
    entry.kind = table.substr(at, 4);
    const std::uint64_t flags = get(table, at + 4, 4), place = get(table, at + 8, 8), length = get(table, at + 16, 8);
    const std::string name = printable(entry.kind);
    if ((flags & ~std::uint64_t{required_flag}) != 0)
      throw FileError(
          fmt::format("the section {} has flags that Jerboa {} does not know", name, to_string(host_version)));
    entry.required = flags != 0;
    if (place < end || place > file.size() || length > file.size() - place)
      throw FileError(fmt::format("the section {} is truncated", name));
    end = place + length;
    entry.bytes = file.substr(place, length);
    if (crc32(entry.bytes) != get(table, at + 24, 4))
      throw FileError(fmt::format("the section {} is damaged: its checksum does not match", name));
    if (entry.kind == section::loops)
      throw FileError(
          fmt::format("has steps that repeat (section {}), which Jerboa {} cannot run", name, to_string(host_version)));
    if (!is_known(entry.kind)) {
      if (entry.required)
        throw FileError(
            fmt::format("needs the section {}, which Jerboa {} does not know", name, to_string(host_version)));
      continue;
    }
    if (std::any_of(sections.begin(), sections.end(), [&](const Section& other) { return other.kind == entry.kind; }))
      throw FileError(fmt::format("has the section {} twice", name));
    sections.push_back(std::move(entry));
  }
  return sections;
}

}  // namespace jerboa::detail
