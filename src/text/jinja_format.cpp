#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/core.h>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

// Python's two ways to format: "%s" % x and "{}".format(x).
namespace jerboa::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false, grouping = false;
  std::size_t width = 0;
  int precision = -1;
  char type = '\0';
};

constexpr std::size_t max_width = 100'000;

std::size_t parse_number(std::string_view text, std::size_t& position) {
  std::size_t value = 0;
  while (position < text.size() && text[position] >= '0' && text[position] <= '9') {
    value = value * 10 + static_cast<std::size_t>(text[position++] - '0');
    if (value > max_width) throw Fault(fmt::format("format: a width above {}", max_width));
  }
  return value;
}

// [[fill]align][sign][#][0][width][,][.precision][type]
Spec parse_spec(std::string_view text) {
  Spec out;
  constexpr std::string_view alignments = "<>^=";
  const std::u32string characters = decode_utf8(text);
  std::size_t i = 0;
  if (characters.size() > 1 && characters[1] < 0x80 &&
      alignments.find(static_cast<char>(characters[1])) != std::string_view::npos) {
    out.fill = encode_utf8(std::u32string_view(characters).substr(0, 1));
    out.align = static_cast<char>(characters[1]);
    i = out.fill.size() + 1;
  } else if (!text.empty() && alignments.find(text[0]) != std::string_view::npos) {
    out.align = text[i++];
  }
  const auto take = [&](char c) { return i < text.size() && text[i] == c && (++i, true); };
  for (const char c : {'+', '-', ' '})
    if (take(c)) out.sign = c;
  out.alternate = take('#');
  if (take('0') && out.align == '\0') {
    out.fill = "0";
    out.align = '=';
  }
  out.width = parse_number(text, i);
  out.grouping = take(',') || take('_');
  if (take('.')) out.precision = static_cast<int>(parse_number(text, i));
  if (i < text.size()) out.type = text[i++];
  if (i != text.size()) throw Fault(fmt::format("format: cannot read '{}'", text));
  return out;
}

std::string group_thousands(std::string digits) {
  const std::size_t end = std::min(digits.find_first_of(".e"), digits.size());
  for (std::size_t i = end; i > 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

std::string pad(std::string_view sign, std::string_view body, const Spec& spec, char default_align) {
  const std::size_t size = count_characters(body) + sign.size();
  const std::size_t missing = spec.width > size ? spec.width - size : 0;
  const char align = spec.align == '\0' ? default_align : spec.align;
  const std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') out += sign;
  for (std::size_t i = 0; i < left; ++i) out += spec.fill;
  if (align != '=') out += sign;
  out += body;
  for (std::size_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string float_body(double magnitude, const Spec& spec, char type) {
  // A magnitude of 1e308 has 309 digits; a precision is bounded by max_width.
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (type) {
    case 'e': return fmt::format("{:.{}e}", magnitude, precision);
    case 'E': return fmt::format("{:.{}E}", magnitude, precision);
    case 'g': return fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    case '%': return fmt::format("{:.{}f}%", magnitude * 100, precision);
    case '\0':
      return spec.precision < 0 ? format_float(magnitude) : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
    default: return fmt::format("{:.{}f}", magnitude, precision);
  }
}

std::string format_value(const Value& value, const Spec& spec) {
  const bool numeric_type = spec.type != '\0' && std::string_view("dxXobeEfFgG%").find(spec.type) != std::string::npos;
  if (!value.is_number() || (value.is_bool() && !numeric_type) || spec.type == 's') {
    if (numeric_type) throw Fault(fmt::format("format: '{}' does not fit a '{}'", spec.type, value.type_name()));
    std::string text = value.str();
    if (spec.precision >= 0) text = encode_utf8(decode_utf8(text).substr(0, static_cast<std::size_t>(spec.precision)));
    return pad("", text, spec, '<');
  }
  const bool negative = value.is_float() ? std::signbit(value.number()) : value.integer() < 0;
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  std::string body;
  if (value.is_integral() && std::string_view("dxXob").find(spec.type == '\0' ? 'd' : spec.type) != std::string::npos) {
    const std::uint64_t magnitude =
        negative ? -static_cast<std::uint64_t>(value.integer()) : static_cast<std::uint64_t>(value.integer());
    switch (spec.type) {
      case 'x': body = fmt::format("{:x}", magnitude); break;
      case 'X': body = fmt::format("{:X}", magnitude); break;
      case 'o': body = fmt::format("{:o}", magnitude); break;
      case 'b': body = fmt::format("{:b}", magnitude); break;
      default: body = fmt::format("{}", magnitude);
    }
    if (spec.alternate && spec.type != '\0' && spec.type != 'd') body = fmt::format("0{}{}", spec.type, body);
  } else {
    if (spec.type == 'd' || spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b')
      throw Fault(fmt::format("format: '{}' does not fit a 'float'", spec.type));
    body = float_body(std::fabs(value.number()), spec, spec.type);
  }
  return pad(sign, spec.grouping ? group_thousands(std::move(body)) : body, spec, '>');
}

// "0.name[key]" of a replacement field.
Value resolve_field(std::string_view field, const Arguments& arguments, std::size_t& automatic) {
  std::size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view head = field.substr(0, end);
  Value value;
  if (head.empty() || std::all_of(head.begin(), head.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    std::size_t index = automatic;
    if (head.empty())
      ++automatic;
    else
      std::from_chars(head.data(), head.data() + head.size(), index);
    if (index >= arguments.positional.size()) throw Fault("format: too few arguments");
    value = arguments.positional[index];
  } else {
    const auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& item) { return item.first == head; });
    if (found == arguments.named.end()) throw Fault(fmt::format("format: no argument '{}'", head));
    value = found->second;
  }
  while (end < field.size()) {
    if (field[end] == '.') {
      const std::size_t stop = std::min(field.find_first_of(".[", end + 1), field.size());
      value = get_attribute(value, field.substr(end + 1, stop - end - 1));
      end = stop;
    } else {
      const std::size_t stop = field.find(']', end);
      if (stop == std::string_view::npos) throw Fault("format: ']' is missing");
      const std::string_view key = field.substr(end + 1, stop - end - 1);
      std::int64_t index = 0;
      const auto [last, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool number = error == std::errc{} && last == key.data() + key.size();
      value = get_item(value, number ? Value(index) : Value(key));
      end = stop + 1;
    }
  }
  return value;
}

}  // namespace

std::string format_braces(Interpreter& interpreter, std::string_view format, const Arguments& arguments) {
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out += format[i++];
    } else if (c == '{') {
      const std::size_t end = format.find('}', i);
      if (end == std::string_view::npos) throw Fault("format: '}' is missing");
      std::string_view field = format.substr(i + 1, end - i - 1);
      std::string_view spec;
      if (const auto colon = field.find(':'); colon != std::string_view::npos) {
        spec = field.substr(colon + 1);
        field = field.substr(0, colon);
      }
      char conversion = '\0';
      if (const auto mark = field.find('!'); mark != std::string_view::npos) {
        conversion = mark + 1 < field.size() ? field[mark + 1] : '\0';
        field = field.substr(0, mark);
      }
      Value value = resolve_field(field, arguments, automatic);
      if (conversion != '\0') value = conversion == 'r' ? value.repr() : value.str();
      const std::string text = format_value(value, parse_spec(spec));
      interpreter.charge(text.size());
      out += text;
      i = end;
    } else if (c == '}') {
      throw Fault("format: a single '}'");
    } else {
      out += c;
    }
  }
  return out;
}

std::string format_percent(Interpreter& interpreter, std::string_view format, const Value& values) {
  const bool many = values.is_list() && values.list()->tuple;
  std::size_t used = 0;
  const auto next_value = [&]() -> Value {
    if (!many && used++ == 0) return values;
    if (many && used < values.list()->items.size()) return values.list()->items[used++];
    throw Fault("format: too few arguments");
  };
  bool by_name = false;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i >= format.size()) throw Fault("format: a '%' ends the text");
    if (format[i] == '%') {
      out += '%';
      continue;
    }
    Value value;
    bool named = false;
    if (format[i] == '(') {
      const std::size_t end = format.find(')', i);
      if (end == std::string_view::npos || !values.is_dict()) throw Fault("format: '%(name)' needs a dict");
      value = get_item(values, Value(format.substr(i + 1, end - i - 1)));
      by_name = named = true;
      i = end + 1;
    }
    Spec spec;
    for (; i < format.size(); ++i) {
      if (format[i] == '-') {
        spec.align = '<';
      } else if (format[i] == '0') {
        if (spec.align == '\0') {
          spec.fill = "0";
          spec.align = '=';
        }
      } else if (format[i] == '+' || format[i] == ' ') {
        spec.sign = format[i];
      } else if (format[i] == '#') {
        spec.alternate = true;
      } else {
        break;
      }
    }
    spec.width = parse_number(format, i);
    if (i < format.size() && format[i] == '.') spec.precision = static_cast<int>(parse_number(format, ++i));
    if (i >= format.size()) throw Fault("format: a '%' has no type");
    spec.type = format[i];
    if (!named) value = next_value();
    switch (spec.type) {
      case 's':
      case 'r':
        value = spec.type == 's' ? value.str() : value.repr();
        spec.type = 's';
        if (spec.align == '\0' || spec.align == '=') spec.align = '>';
        break;
      case 'i':
      case 'u': spec.type = 'd'; [[fallthrough]];
      case 'd':
        if (value.is_float()) {
          if (!(std::fabs(value.number()) < 9e18)) throw Fault("format: the number is too large for '%d'");
          value = static_cast<std::int64_t>(value.number());
        }
        break;
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g': break;
      default: throw Fault(fmt::format("format: unknown type '%{}'", spec.type));
    }
    const std::string text = format_value(value, spec);
    interpreter.charge(text.size());
    out += text;
  }
  const std::size_t given = many ? values.list()->items.size() : values.is_dict() || by_name ? used : 1;
  if (used != given && !by_name) throw Fault("format: not all arguments were used");
  return out;
}

}  // namespace jerboa::jinja
