#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::detail {

// The container of a program file: a header, a table of typed sections, the sections. docs/program-files.md has the
// layout. program_io.cpp defines the contents of sections.

/// Sections are named by four characters, so that a reader can name one that it does not know.
namespace section {
inline constexpr std::string_view requirements = "NEED", programs = "PROG", cpu = "CPU ", gpu = "GPU ",
                                  indices = "INDX", rates = "RATE", checks = "CHCK", data = "DATA";
/// Reserved for steps that repeat; refused until a version defines it.
inline constexpr std::string_view loops = "LOOP";
}  // namespace section

/// The format that this version writes and reads.
inline constexpr std::uint32_t program_format = 5;

struct HostVersion {
  int major = 0, minor = 0, patch = 0;
  friend auto operator<=>(const HostVersion&,
                          const HostVersion&) = default;  // NOLINT(modernize-use-nullptr): a false alarm
};
std::string to_string(const HostVersion& version);
/// The version of this library as a host of program files.
inline constexpr HostVersion host_version{0, 1, 0};

struct Section {
  std::string kind;
  bool required = true;  ///< a reader that does not know it must refuse the file; others may be skipped
  std::string_view bytes;
};

/// `least_host`: the first version that can run the file.
std::string write_sections(const std::vector<Section>& sections, const HostVersion& least_host);

/// The sections that this version knows, each at most once; their bytes refer to the file. Throws FileError, without
/// the file's name, if the file is damaged, has another format, requires a later host or has a required section that is
/// unknown.
std::vector<Section> read_sections(std::string_view file);

}  // namespace jerboa::detail
