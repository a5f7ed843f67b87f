#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_interpreter.h"

namespace jerboa::jinja {

/// `loop` inside a for.
class LoopObject : public Object {
 public:
  LoopObject(const For& loop, std::shared_ptr<Scope> outer, std::vector<Value> items, int recursion)
      : loop_(loop), outer_(std::move(outer)), list_(std::move(items), false), recursion_(recursion) {}

  const std::vector<Value>& items() const { return list_.items; }
  std::size_t index() const { return index_; }
  void advance() { ++index_; }

  std::string type_name() const override { return "loop"; }
  int depth() const override { return list_.depth; }
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return loop_.recursive; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;

 private:
  const For& loop_;
  std::shared_ptr<Scope> outer_;
  List list_;
  std::size_t index_ = 0;
  int recursion_;
};

class MacroObject : public Object {
 public:
  MacroObject(std::shared_ptr<const Callable> callable, std::shared_ptr<Scope> closure)
      : callable_(std::move(callable)), closure_(std::move(closure)) {}

  std::string type_name() const override { return "macro"; }
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;

 private:
  std::shared_ptr<const Callable> callable_;
  std::shared_ptr<Scope> closure_;
};

class Namespace : public Object {
 public:
  std::string type_name() const override { return "namespace"; }
  int depth() const override { return values_.depth(); }
  std::optional<Value> attribute(std::string_view name) override;
  void set_attribute(const std::string& name, const Value& value) override { values_.set(name, value); }
  void clear() override { values_.clear(); }

 private:
  Dict values_;
};

/// A method that a template passes around instead of calling it directly.
class BoundMethod : public Object {
 public:
  BoundMethod(const Value& object, std::string name) : object_({object}, false), name_(std::move(name)) {}
  int depth() const override { return object_.depth; }
  std::string type_name() const override { return "method " + name_; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments& arguments) override;

 private:
  List object_;  // holds exactly one value
  std::string name_;
};

/// The arguments of a built-in function by position or name. Throws Fault for an argument that is unknown, repeated or
/// surplus.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view function, Arguments& arguments, std::initializer_list<std::string_view> names);

  /// Null if the argument was not given.
  const Value* find(std::size_t index) const { return values_[index]; }
  const Value& required(std::size_t index) const;
  Value value(std::size_t index, const Value& fallback) const;
  const std::string& text(std::size_t index) const;
  std::string text(std::size_t index, const std::string& fallback) const;
  std::int64_t integer(std::size_t index) const;
  std::int64_t integer(std::size_t index, std::int64_t fallback) const;
  bool flag(std::size_t index, bool fallback) const;

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace jerboa::jinja
