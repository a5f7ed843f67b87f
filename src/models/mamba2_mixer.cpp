#include "models/mamba2_mixer.h"

#include <cmath>
#include <fmt/format.h>

#include "models/recurrent.h"

namespace jerboa::models {
namespace {

Tensor multiplied(const Tensor& x, double scale) { return scale == 1 ? x : x * scale; }

/// The sections of the input projection, each with its multiplier applied.
struct Sections {
  Tensor gate, mixed, steps;
};

Sections project(const Decoder& decoder, const Mamba2Form& form, const std::string& name, const Tensor& x) {
  const int inner = form.heads * form.head_size, addresses = form.groups * form.state;
  const int mixed = inner + 2 * addresses;
  const Tensor all =
      decoder.linear(name + ".in_proj", multiplied(x, form.in_scale), inner + mixed + form.heads, form.in_bias);
  if (form.section_scales.empty()) {
    const auto parts = split(all, {inner, mixed, form.heads});
    return {parts[0], parts[1], parts[2]};
  }
  const auto parts = split(all, {inner, inner, addresses, addresses, form.heads});
  std::vector<Tensor> scaled;
  for (std::size_t i = 0; i < parts.size(); ++i) scaled.push_back(multiplied(parts[i], form.section_scales[i]));
  return {scaled[0], concat({scaled[1], scaled[2], scaled[3]}), scaled[4]};
}

/// The time step of each head, [batch, time, heads].
Tensor steps_of(const Decoder& decoder, const Mamba2Form& form, const std::string& name, const Tensor& raw) {
  const Tensor steps = softplus(raw + decoder.vector(name + ".dt_bias", {form.heads}, 1));
  if (std::isfinite(form.longest_step)) return clamp(steps, form.shortest_step, form.longest_step);
  return form.shortest_step > 0 ? maximum(steps, form.shortest_step) : steps;
}

Tensor grouped_norm(const Decoder& decoder, const Mamba2Form& form, const std::string& name, const Tensor& x) {
  if (form.norm_groups == 1) return decoder.rms_norm(name + ".norm", x, form.eps);
  const Tensor parts = reshape(x, {x.dim(0), x.dim(1), form.norm_groups, -1});
  const Tensor normed = reshape(rms_norm(parts, {}, form.eps), x.shape());
  return normed * decoder.vector(name + ".norm.weight", {x.dim(-1)}, 1);
}

/// `x` is [batch, time, heads, size]: there, gates are opened where linear attention's results are.
Tensor gated(const Decoder& decoder, const Mamba2Form& form, const std::string& name, const Tensor& x,
             const Tensor& gate) {
  if (form.norm && form.norm_before_gate) {
    const Tensor normed = grouped_norm(decoder, form, name, reshape(x, gate.shape()));
    return normed * silu(gate);
  }
  const Tensor opened = reshape(x * silu(reshape(gate, x.shape())), gate.shape());
  return form.norm ? grouped_norm(decoder, form, name, opened) : opened;
}

}  // namespace

void check_mamba2(const Config& config, const std::string& heads_key, const Mamba2Form& form) {
  if (form.heads % form.groups != 0) config.fail(heads_key, fmt::format("is not a multiple of {} groups", form.groups));
  if (form.heads * std::int64_t{form.head_size} % form.norm_groups != 0)
    config.fail(heads_key, fmt::format("does not give {} equal groups of features", form.norm_groups));
  if (std::int64_t{form.heads} * form.head_size > Config::largest_size ||
      std::int64_t{form.groups} * form.state > Config::largest_size)
    config.fail(heads_key, fmt::format("is too many heads of {} features each", form.head_size));
}

void read_step_limits(const Config& config, Mamba2Form& form) {
  if (!config.has("time_step_limit")) return;
  const auto limits = config.numbers("time_step_limit");
  if (limits.size() != 2 || !(limits[0] >= 0) || !(limits[1] > limits[0]))
    config.fail("time_step_limit", "is not a lower limit and a higher one");
  form.shortest_step = limits[0];
  form.longest_step = limits[1];
}

int mamba2_head_size(const Config& config, const std::string& key, int inner, int heads) {
  const bool automatic = !config.has(key) || (config.is_text(key) && config.text(key) == "auto");
  const int size = automatic ? inner / heads : config.size(key);
  if (std::int64_t{size} * heads != inner) config.fail(key, fmt::format("times {} heads is not {}", heads, inner));
  return size;
}

Tensor mamba2_mixer(const Decoder& decoder, const Config& config, const Mamba2Form& form, int layer,
                    const std::string& name, const Tensor& x) {
  const int inner = form.heads * form.head_size, addresses = form.groups * form.state;
  const Sections sections = project(decoder, form, name, x);
  const Tensor mixed =
      activation(config, form.activation,
                 causal_convolution(decoder, layer, name + ".conv1d", sections.mixed, form.taps, form.conv_bias));
  const auto parts = split(mixed, {inner, addresses, addresses});
  const auto heads = [&](const Tensor& part, int count) {
    return reshape(part, {part.dim(0), part.dim(1), count, -1});
  };
  const Tensor steps = steps_of(decoder, form, name, sections.steps);
  const Tensor rates = exp(decoder.vector(name + ".A_log", {form.heads}, 0));
  const Tensor values = heads(parts[0], form.heads);
  MemoryAccess access;
  access.q = heads(parts[2], form.groups);
  access.k = heads(parts[1], form.groups);
  access.v = values * unsqueeze(steps, {-1});
  access.log_decay = -(steps * rates);
  const Tensor remembered = read_memory(decoder, layer, access);
  const Tensor skipped = values * unsqueeze(decoder.vector(name + ".D", {form.heads}, 1), {-1});
  const Tensor out = gated(decoder, form, name, remembered + skipped, sections.gate);
  return decoder.linear(name + ".out_proj", out, form.width, form.out_bias);
}

}  // namespace jerboa::models
