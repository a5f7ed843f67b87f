#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// The values a template works on, with Python's meaning: what is true, what is equal, how it prints.
namespace jerboa::jinja {

class Interpreter;
class Value;

/// Limit of a value's printed size: a few short statements can build a list that contains another 2^60 times.
inline constexpr std::size_t max_printed_bytes = std::size_t{64} << 20;

/// Limit of a value's nesting; a container may even contain itself.
inline constexpr int max_depth = 200;

/// An error while a template runs; the interpreter adds the line and turns it into a TemplateError.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The value of a missing name, key or attribute. It is false, empty and prints as nothing; any other use is a Fault
/// with `what`, e.g. "'tools' is undefined".
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
using String = std::shared_ptr<const std::string>;

/// A list, or a tuple, which prints with parentheses and is immutable.
struct List {
  List(std::vector<Value> values, bool is_tuple);
  void insert(std::size_t position, Value value);

  std::vector<Value> items;
  bool tuple;
  int depth = 1;  // of containers in containers, bounded so that walking and freeing them cannot overflow the stack
};

class Dict;
struct Arguments;

/// A value that is neither data nor a container: a macro, a method, `loop`, a namespace.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual int depth() const { return 1; }
  virtual std::optional<Value> attribute(std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments& arguments);
  /// namespace.name = value; a Fault for every other object.
  virtual void set_attribute(const std::string& name, const Value& value);
  /// Drops the values that templates have set.
  virtual void clear() {}
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool boolean) : data_(boolean) {}
  Value(std::int64_t integer) : data_(integer) {}
  Value(double number) : data_(number) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::vector<Value> items) : data_(std::make_shared<List>(std::move(items), false)) {}
  Value(std::shared_ptr<List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<Dict> dict) : data_(std::move(dict)) {}
  template <typename Derived, typename = std::enable_if_t<std::is_base_of_v<Object, Derived>>>
  Value(std::shared_ptr<Derived> object) : data_(std::shared_ptr<Object>(std::move(object))) {}

  static Value tuple(std::vector<Value> items) { return std::make_shared<List>(std::move(items), true); }
  static Value size(std::size_t count) { return static_cast<std::int64_t>(count); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  /// An integer as Python sees it: booleans count.
  bool is_integral() const { return std::holds_alternative<std::int64_t>(data_) || is_bool(); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_integral() || is_float(); }
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  // Each requires the matching is_…(), except for the numbers, which convert between each other.
  std::int64_t integer() const;
  double number() const;
  const std::string& text() const { return *std::get<String>(data_); }
  const std::shared_ptr<List>& list() const { return std::get<std::shared_ptr<List>>(data_); }
  const std::shared_ptr<Dict>& dict() const { return std::get<std::shared_ptr<Dict>>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }

  bool truthy() const;
  /// 0 for a value that contains no others.
  int depth() const;
  bool callable() const { return is_object() && object()->callable(); }
  /// str(value)
  std::string str() const;
  /// repr(value)
  std::string repr() const;
  /// Python's name of the type: "str", "list", "Undefined".
  std::string type_name() const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, String, std::shared_ptr<List>, std::shared_ptr<Dict>,
               std::shared_ptr<Object>>
      data_;
};

/// A missing value, with the message for its use.
inline Value undefined(std::string what) { return Undefined{std::make_shared<const std::string>(std::move(what))}; }

/// Keys in the order in which they were first set.
class Dict {
 public:
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  bool erase(const Value& key);
  void clear();
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  std::optional<std::size_t> position(const Value& key) const;
  std::optional<std::size_t> position(std::string_view key) const;
  void index_strings();

  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, std::size_t> index_;  // string keys, once a dict is large
  int depth_ = 1;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

bool equal(const Value& a, const Value& b);
/// Python's <, -, 0 or + as a sorts before, with or after b; a Fault if the types have no order.
int compare(const Value& a, const Value& b);
/// `needle in haystack`
bool contains(const Value& haystack, const Value& needle);
/// The values that a loop yields: list items, dict keys, characters; none for undefined.
std::vector<Value> iterate(const Value& value);
/// len(value)
std::size_t length(const Value& value);
/// A float as repr() prints it: 1.0, 0.1, 1e+16.
std::string format_float(double number);

Value from_json(const nlohmann::ordered_json& json);

struct JsonFormat {
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
/// json.dumps(value)
std::string to_json(const Value& value, const JsonFormat& format);

}  // namespace jerboa::jinja
