#include "wgsl/functions.h"

#include <array>
#include <string_view>
#include <vector>

namespace jerboa::wgsl {
namespace {

struct Function {
  std::string_view name, needs, text;
};

// Ordered so that each uses only those above it.
constexpr auto functions = std::to_array<Function>({
    {"exp_f32", "", R"(
// Accurate to about one unit in the last place, which drivers do not guarantee: the power of two is computed
// separately, the rest with a polynomial.
fn exp_f32(x: f32) -> f32 {
  let bounded = clamp(x, -104.0, 89.0);
  let n = round(bounded * 1.44269502f);
  let r = (bounded - n * 0.693359375f) - n * -2.12194442e-4f;
  let series = 0.5f + r * (0.166666657f + r * (0.0416657962f + r * (0.00833345205f + r * (0.00139819994f
      + r * 1.98756912e-4f))));
  // As two factors, each a power of two that f32 can hold; ldexp does the same with many more instructions.
  let half = i32(n) / 2;
  let first = bitcast<f32>((half + 127) << 23u);
  let second = bitcast<f32>((i32(n) - half + 127) << 23u);
  return (1.0 + (r + r * r * series)) * first * second;
}
)"},
    {"log1p_f32", "", R"(
// Uses log((1 + s) / (1 - s)) = 2 s (1 + s²/3 + …), for x from 0 to 1.
fn log1p_f32(x: f32) -> f32 {
  let s = x / (2.0 + x);
  let z = s * s;
  return 2.0 * s * (1.0 + z * (0.333333343f + z * (0.2f + z * (0.142857149f + z * (0.111111112f + z * (0.0909090936f
      + z * 0.0769230798f))))));
}
)"},
    {"log_f32", "", R"(
// The mantissa, between sqrt(1/2) and sqrt(2), uses the same series; the exponent is added separately. The logarithm of
// 0 is minus infinity and that of less is NaN, as bits chosen at run time: a constant may be neither.
fn log_f32(x: f32) -> f32 {
  if (x <= 0.0) { return bitcast<f32>(select(0x7fc00000u, 0xff800000u, x == 0.0)); }
  var mantissa = frexp(x).fract;
  var exponent = f32(frexp(x).exp);
  if (mantissa < 0.707106769f) { mantissa = mantissa * 2.0; exponent = exponent - 1.0; }
  let s = (mantissa - 1.0) / (mantissa + 1.0);
  let z = s * s;
  let series = 2.0 * s * (1.0 + z * (0.333333343f + z * (0.2f + z * (0.142857149f + z * 0.116f))));
  return exponent * 0.693359375f + (series + exponent * -2.12194442e-4f);
}
)"},
    {"expm1_f32", "exp_f32", R"(
fn expm1_f32(x: f32) -> f32 {
  if (abs(x) > 0.5) { return exp_f32(x) - 1.0; }
  return x * (1.0 + x * 0.5f * (1.0 + x * 0.333333343f * (1.0 + x * 0.25f * (1.0 + x * 0.2f * (1.0 + x * 0.166666672f
      * (1.0 + x * 0.142857149f * (1.0 + x * 0.125f)))))));
}
)"},
    {"tanh_f32", "exp_f32", R"(
fn tanh_f32(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.625) {
    let z = x * x;
    return x + x * z * (-0.333332819f + z * (0.133314422f + z * (-0.0537397155f + z * (0.0206390888f
        + z * -0.00570498873f))));
  }
  let far = 1.0 - 2.0 / (exp_f32(2.0 * min(a, 20.0)) + 1.0);
  return select(far, -far, x < 0.0);
}
)"},
    {"square_or_large", "", R"(
fn square_or_large(x: f32) -> f32 {
  return select(x * x, 1e38, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}
)"},
    {"sigmoid_f32", "exp_f32", R"(
fn sigmoid_f32(x: f32) -> f32 { return 1.0 / (1.0 + exp_f32(min(-x, 87.0))); }
)"},
    {"erf_f32", "", R"(
fn erf_f32(x: f32) -> f32 {
  let b = clamp(x, -4.0f, 4.0f);
  let z = b * b;
  var top = -2.72614225801306e-10f;
  top = top * z + 2.77068142495902e-08f;
  top = top * z - 2.10102402082508e-06f;
  top = top * z - 5.69250639462346e-05f;
  top = top * z - 7.34990630326855e-04f;
  top = top * z - 2.95459980854025e-03f;
  top = top * z - 1.60960333262415e-02f;
  var bottom = -1.45660718464996e-05f;
  bottom = bottom * z - 2.13374055278905e-04f;
  bottom = bottom * z - 1.68282697438203e-03f;
  bottom = bottom * z - 7.37332916720468e-03f;
  bottom = bottom * z - 1.42647390514189e-02f;
  return b * top / bottom;
}
)"},
    {"quadrant", "", R"(
// The angle minus the nearest multiple of π/2, subtracted in three parts to lose little precision; and that multiple.
fn quadrant(x: f32) -> vec2f {
  let k = round(x * 0.636619747f);
  return vec2f(((x - k * 1.5703125f) - k * 4.83751297e-4f) - k * 7.54978995e-8f, k);
}
fn sine_near_0(r: f32) -> f32 {
  let z = r * r;
  return r + r * z * (-0.166666546f + z * (0.00833216087f + z * -1.95152959e-4f));
}
fn cosine_near_0(r: f32) -> f32 {
  let z = r * r;
  return 1.0 - 0.5 * z + z * z * (0.0416666456f + z * (-0.00138873162f + z * 2.44331571e-5f));
}
fn sine_in_quadrant(r: f32, k: i32) -> f32 {
  let value = select(sine_near_0(r), cosine_near_0(r), (k & 1) != 0);
  return select(value, -value, (k & 2) != 0);
}
)"},
    {"sin_f32", "quadrant", R"(
fn sin_f32(x: f32) -> f32 { let at = quadrant(x); return sine_in_quadrant(at.x, i32(at.y)); }
)"},
    {"cos_f32", "quadrant", R"(
fn cos_f32(x: f32) -> f32 { let at = quadrant(x); return sine_in_quadrant(at.x, i32(at.y) + 1); }
)"},
    {"pow_f32", "", R"(
// Results that are not finite come from bits chosen at run time: a constant may be neither NaN nor infinite.
fn pow_f32(base: f32, exponent: f32) -> f32 {
  if (exponent == 0.0) { return 1.0; }
  if (base <= 0.0) {
    let at_zero = select(0u, 0x7f800000u, exponent < 0.0);
    return bitcast<f32>(select(at_zero, 0x7fc00000u, base < 0.0));
  }
  return pow(base, exponent);
}
)"},
    {"mod_f32", "", R"(
// Division may be off by a bit, so a quotient near an integer may truncate to its neighbour.
fn mod_f32(a: f32, b: f32) -> f32 {
  let size = abs(b);
  var rest = abs(a) - size * trunc(abs(a) / size);
  if (rest >= size) { rest = rest - size; }
  if (rest < 0.0) { rest = rest + size; }
  return select(rest, -rest, a < 0.0);
}
)"},
    {"round_bf16", "", R"(
fn round_bf16(x: f32) -> u32 {
  let word = bitcast<u32>(x);
  return (word + 0x7fffu + ((word >> 16u) & 1u)) & 0xffff0000u;
}
)"},
    {"unpack_one", "", R"(
// A feature of an 8-bit cache, or four of them, from their word and the word with their scale.
fn packed_scale(scales: u32, feature: u32) -> f32 {
  return bitcast<f32>((scales >> (feature / 32u % 2u * 16u)) << 16u);
}
fn unpack_one(word: u32, scales: u32, feature: u32) -> f32 {
  return f32(extractBits(bitcast<i32>(word), feature % 4u * 8u, 8u)) * packed_scale(scales, feature);
}
)"},
    {"unpack_four", "unpack_one", R"(
fn unpack_four(word: u32, scales: u32, feature: u32) -> vec4f {
  let bytes = (vec4i(bitcast<i32>(word)) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
  return vec4f(bytes) * packed_scale(scales, feature);
}
)"},
    {"threefry", "", R"(
// Threefry-2x32 with 20 rounds.
fn rotate_left(x: u32, by: u32) -> u32 { return (x << by) | (x >> (32u - by)); }
fn threefry_round(x: vec2u, by: u32) -> vec2u { let sum = x.x + x.y; return vec2u(sum, rotate_left(x.y, by) ^ sum); }
fn threefry_even(x: vec2u) -> vec2u {
  return threefry_round(threefry_round(threefry_round(threefry_round(x, 13u), 15u), 26u), 6u);
}
fn threefry_odd(x: vec2u) -> vec2u {
  return threefry_round(threefry_round(threefry_round(threefry_round(x, 17u), 29u), 16u), 24u);
}
fn threefry(key: vec2u, counter: vec2u) -> vec2u {
  let third = key.x ^ key.y ^ 0x1bd11bdau;
  var x = counter + key;
  x = threefry_even(x) + vec2u(key.y, third + 1u);
  x = threefry_odd(x) + vec2u(third, key.x + 2u);
  x = threefry_even(x) + vec2u(key.x, key.y + 3u);
  x = threefry_odd(x) + vec2u(key.y, third + 4u);
  x = threefry_even(x) + vec2u(third, key.x + 5u);
  return x;
}
)"},
    {"random_uniform", "threefry", R"(
fn random_uniform(element: i32, key0: u32, key1: u32, stream: u32) -> f32 {
  return f32(threefry(vec2u(key0, key1), vec2u(u32(element), stream)).x >> 8u) * 5.96046448e-8f;
}
)"},
    {"random_normal", "threefry log_f32 cos_f32 quadrant", R"(
fn random_normal(element: i32, key0: u32, key1: u32, stream: u32) -> f32 {
  let x = threefry(vec2u(key0, key1), vec2u(u32(element), stream));
  let u1 = (f32(x.x >> 8u) + 1.0) * 5.96046448e-8f;
  let u2 = f32(x.y >> 8u) * 5.96046448e-8f;
  return sqrt(-2.0 * log_f32(u1)) * cos_f32(6.28318548f * u2);
}
)"},
});

bool contains_word(std::string_view words, std::string_view word) {
  for (std::size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace

std::string function_texts(const std::set<std::string>& names) {
  std::vector<bool> wanted(functions.size(), false);
  for (std::size_t i = functions.size(); i-- > 0;) {
    wanted[i] = wanted[i] || names.contains(std::string(functions[i].name));
    if (!wanted[i]) continue;
    for (std::size_t j = 0; j < i; ++j)
      if (contains_word(functions[i].needs, functions[j].name)) wanted[j] = true;
  }
  std::string text;
  for (std::size_t i = 0; i < functions.size(); ++i)
    if (wanted[i]) text += functions[i].text.substr(1);
  return text;
}

}  // namespace jerboa::wgsl
