#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wgsl/tuning/form_table.h"

namespace jerboa::wgsl {

/// A file of `jerboa tune`.
struct TunedFile {
  std::string device, driver;  ///< AdapterInfo::name and driver
  struct Kernel {
    KernelShape shape;
    KernelForm form;
    double seconds = 0, untuned_seconds = 0;  ///< of this form, and of the one chosen without the file
    bool operator==(const Kernel&) const = default;
  };
  std::vector<Kernel> kernels;
  bool operator==(const TunedFile&) const = default;
};
std::string to_json(const TunedFile& file);
/// Throws FileError that begins with `name` and says what is wrong.
TunedFile parse_tuned_file(std::string_view text, const std::string& name);
/// Whether the form is among the candidates for its shape, which depend on the device's limits, on the measured number
/// of concurrent workgroups and on the release.
bool fits(const TunedFile::Kernel& kernel, const Target& target);
/// Throws FileError that begins with `name` if a form does not fit.
void check_forms(const TunedFile& file, const Target& target, const std::string& name);
/// The forms of the file that fit.
std::shared_ptr<const FormTable> forms_of(const TunedFile& file, const Target& target);

}  // namespace jerboa::wgsl
