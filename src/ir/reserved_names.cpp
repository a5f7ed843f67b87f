#include <array>
#include <fmt/format.h>
#include <string_view>

#include <jerboa/ir/reserved_names.h>

namespace jerboa {
namespace {

// A pattern that ends in a slash is a prefix, one that begins with a slash a suffix.
struct ReservedName {
  std::string_view pattern, holds;
};

constexpr auto reserved_names = std::to_array<ReservedName>({
    {gradient_prefix, "gradients"},
    {half_copy_prefix, "f16 copies of parameters"},
    {stored_state_prefix, "states in checkpoints"},
    {step_state, "the step counter of an optimizer"},
    {"/step", "step counters of optimizers"},
    {loss_scale_state, "the loss's scale in mixed precision"},
    {loss_scale_age_state, "the age of the loss's scale in mixed precision"},
    {random_state, "the state of random ops"},
});

bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.ends_with('/')) return name.starts_with(pattern);
  return pattern.starts_with('/') ? name.ends_with(pattern) : name == pattern;
}

}  // namespace

std::string detail::why_reserved(const std::string& name) {
  for (const auto& [pattern, holds] : reserved_names) {
    if (!matches(name, pattern)) continue;
    if (pattern.ends_with('/')) return fmt::format("names that begin with {} are those of {}", pattern, holds);
    if (pattern.starts_with('/')) return fmt::format("names that end in {} are those of {}", pattern, holds);
    return fmt::format("it is that of {}", holds);
  }
  return {};
}

}  // namespace jerboa
