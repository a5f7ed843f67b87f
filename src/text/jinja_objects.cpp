#include "text/jinja_objects.h"

#include <ctime>
#include <fmt/core.h>
#include <unordered_map>

#include "text/jinja_operators.h"

namespace jerboa::jinja {
namespace {

class Function : public Object {
 public:
  using Body = Value (*)(Interpreter&, Arguments&);
  Function(std::string name, Body body) : name_(std::move(name)), body_(body) {}
  std::string type_name() const override { return "function " + name_; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override { return body_(interpreter, arguments); }

 private:
  std::string name_;
  Body body_;
};

// loop.cycle: returns its arguments in turn, by the loop's index.
class Cycle : public Object {
 public:
  explicit Cycle(std::size_t index) : index_(index) {}
  std::string type_name() const override { return "method cycle"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    if (arguments.positional.empty()) throw Fault("loop.cycle needs an argument");
    return arguments.positional[index_ % arguments.positional.size()];
  }

 private:
  std::size_t index_;
};

// joiner(", "): nothing the first time, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments&) override { return std::exchange(used_, true) ? separator_ : std::string(); }

 private:
  std::string separator_;
  bool used_ = false;
};

Value make_range(Interpreter& interpreter, Arguments& arguments) {
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty()) throw Fault("range takes one to three integers");
  for (const Value& value : given)
    if (!value.is_integral()) throw Fault(fmt::format("range needs integers, not '{}'", value.type_name()));
  const std::int64_t start = given.size() > 1 ? given[0].integer() : 0;
  const std::int64_t stop = given.size() > 1 ? given[1].integer() : given[0].integer();
  const std::int64_t step = given.size() > 2 ? given[2].integer() : 1;
  if (step == 0) throw Fault("range: the step must not be zero");
  constexpr std::uint64_t max_items = 100'000;  // as Jinja's sandbox
  std::uint64_t count = 0;
  if (step > 0 ? start < stop : start > stop) {
    const std::uint64_t span = step > 0 ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                        : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : -static_cast<std::uint64_t>(step);
    count = (span - 1) / stride + 1;
  }
  if (count > max_items) throw Fault(fmt::format("range of {} items: at most {} are allowed", count, max_items));
  interpreter.charge(count * sizeof(Value));
  std::vector<Value> items;
  items.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) items.emplace_back(start + static_cast<std::int64_t>(i) * step);
  return items;
}

// dict(…) and namespace(…): from a mapping or pairs, and from named arguments.
template <typename Set>
void collect(const char* name, Arguments& arguments, Set set) {
  if (arguments.positional.size() > 1) throw Fault(fmt::format("{} takes at most one positional argument", name));
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict()->entries()) set(key, value);
      continue;
    }
    for (const Value& pair : iterate(source)) {
      const std::vector<Value> parts = iterate(pair);
      if (parts.size() != 2) throw Fault(fmt::format("{} needs pairs", name));
      set(parts[0], parts[1]);
    }
  }
  for (const auto& [key, value] : arguments.named) set(Value(key), value);
}

Value make_dict(Interpreter&, Arguments& arguments) {
  auto dict = std::make_shared<Dict>();
  collect("dict", arguments, [&](const Value& key, const Value& value) { dict->set(key, value); });
  return dict;
}

Value make_namespace(Interpreter&, Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  collect("namespace", arguments,
          [&](const Value& key, const Value& value) { space->set_attribute(key.str(), value); });
  return space;
}

Value make_joiner(Interpreter&, Arguments& arguments) {
  const ArgumentReader args("joiner", arguments, {"sep"});
  return std::make_shared<Joiner>(args.text(0, ", "));
}

Value raise_exception(Interpreter&, Arguments& arguments) {
  const ArgumentReader args("raise_exception", arguments, {"message"});
  throw Fault(args.required(0).str());
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  const ArgumentReader args("strftime_now", arguments, {"format"});
  const std::string& format = args.text(0);
  const std::time_t now = std::chrono::system_clock::to_time_t(interpreter.now());
  std::tm parts{};
  localtime_r(&now, &parts);
  if (format.size() > 1000) throw Fault("strftime_now: the format is too long");
  // The space at the end distinguishes an empty result from one that does not fit.
  std::string out(format.size() * 64 + 64, '\0');
  const std::size_t size = std::strftime(out.data(), out.size(), (format + " ").c_str(), &parts);
  if (size == 0) throw Fault("strftime_now: the result is too long");
  out.resize(size - 1);
  return out;
}

}  // namespace

std::optional<Value> LoopObject::attribute(std::string_view name) {
  const std::size_t count = items().size();
  if (name == "index") return Value::size(index_ + 1);
  if (name == "index0") return Value::size(index_);
  if (name == "revindex") return Value::size(count - index_);
  if (name == "revindex0") return Value::size(count - index_ - 1);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == count);
  if (name == "length") return Value::size(count);
  if (name == "depth") return Value(static_cast<std::int64_t>(recursion_));
  if (name == "depth0") return Value(static_cast<std::int64_t>(recursion_ - 1));
  if (name == "previtem" && index_ > 0) return items()[index_ - 1];
  if (name == "nextitem" && index_ + 1 < count) return items()[index_ + 1];
  if (name == "cycle") return Value(std::make_shared<Cycle>(index_));
  return std::nullopt;
}

Value LoopObject::call(Interpreter& interpreter, Arguments& arguments) {
  const ArgumentReader args("loop", arguments, {"iterable"});
  return interpreter.run_loop_again(loop_, outer_, args.required(0), recursion_ + 1);
}

std::optional<Value> MacroObject::attribute(std::string_view name) {
  if (name == "name") return Value(callable_->name);
  return std::nullopt;
}

Value MacroObject::call(Interpreter& interpreter, Arguments& arguments) {
  return interpreter.call_macro(*callable_, closure_, std::move(arguments));
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  const Value* value = values_.find(name);
  return value ? std::optional(*value) : std::nullopt;
}

Value BoundMethod::call(Interpreter& interpreter, Arguments& arguments) {
  return call_method(interpreter, object_.items.front(), name_, std::move(arguments));
}

ArgumentReader::ArgumentReader(std::string_view function, Arguments& arguments,
                               std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size())
    throw Fault(
        fmt::format("{} takes at most {} arguments, not {}", function, names.size(), arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) throw Fault(fmt::format("{} takes no argument '{}'", function, name));
    if (values_[i] != nullptr) throw Fault(fmt::format("{} got '{}' twice", function, name));
    values_[i] = &value;
  }
}

const Value& ArgumentReader::required(std::size_t index) const {
  if (values_[index] == nullptr) throw Fault(fmt::format("{} needs '{}'", function_, names_[index]));
  return *values_[index];
}

Value ArgumentReader::value(std::size_t index, const Value& fallback) const {
  return values_[index] != nullptr ? *values_[index] : fallback;
}

const std::string& ArgumentReader::text(std::size_t index) const {
  const Value& value = required(index);
  if (value.is_undefined()) throw Fault(*value.undefined().what);
  if (!value.is_string())
    throw Fault(fmt::format("{}: '{}' must be a str, not '{}'", function_, names_[index], value.type_name()));
  return value.text();
}

std::string ArgumentReader::text(std::size_t index, const std::string& fallback) const {
  return values_[index] == nullptr || values_[index]->is_none() ? fallback : text(index);
}

std::int64_t ArgumentReader::integer(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_integral())
    throw Fault(fmt::format("{}: '{}' must be an int, not '{}'", function_, names_[index], value.type_name()));
  return value.integer();
}

std::int64_t ArgumentReader::integer(std::size_t index, std::int64_t fallback) const {
  return values_[index] == nullptr || values_[index]->is_none() ? fallback : integer(index);
}

bool ArgumentReader::flag(std::size_t index, bool fallback) const {
  return values_[index] == nullptr ? fallback : values_[index]->truthy();
}

const Value* find_builtin(std::string_view name) {
  static const auto make = [](const char* function, Function::Body body) {
    return Value(std::make_shared<Function>(function, body));
  };
  static const std::unordered_map<std::string_view, Value> table = {
      {"range", make("range", make_range)},
      {"dict", make("dict", make_dict)},
      {"namespace", make("namespace", make_namespace)},
      {"joiner", make("joiner", make_joiner)},
      {"raise_exception", make("raise_exception", raise_exception)},
      {"strftime_now", make("strftime_now", strftime_now)},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace jerboa::jinja
