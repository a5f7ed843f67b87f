#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja_value.h"

// A parsed template. Names are indices into Program::names, so that a lookup compares integers. Filters and tests are
// resolved during parsing, and null if unknown: a template may use them in a branch that is never taken.
namespace jerboa::jinja {

using Symbol = int;

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<Statement>;

using FilterFunction = Value (*)(Interpreter&, const Value& input, Arguments& arguments);
using TestFunction = bool (*)(Interpreter&, const Value& input, Arguments& arguments);

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;         // *list
  ExpressionPtr double_star;  // **dict
};

struct Literal {
  Value value;
};
struct Name {
  Symbol symbol;
};
struct Sequence {
  std::vector<ExpressionPtr> items;
  bool tuple;
};
struct Mapping {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
enum class UnaryOp { negative, positive, logical_not };
struct Unary {
  UnaryOp op;
  ExpressionPtr operand;
};
enum class BinaryOp { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Binary {
  BinaryOp op;
  ExpressionPtr left, right;
};
struct Logical {
  bool conjunction;  // and; else or
  ExpressionPtr left, right;
};
enum class CompareOp { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;  // a < b < c
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // each but the object may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  std::string name;
  FilterFunction function;
  ExpressionPtr input;  // null in a filter block: its text
  CallArguments arguments;
};
struct Test {
  std::string name;
  TestFunction function;
  ExpressionPtr input;
  CallArguments arguments;
  bool negated;
};

struct Expression {
  int line = 0;
  int depth = 1;  // of the tree below, bounded by the parser
  std::variant<Literal, Name, Sequence, Mapping, Unary, Binary, Logical, Comparison, Concatenation, Conditional,
               Attribute, Subscript, Slice, Call, Filter, Test>
      node;
};

/// The target of an assignment: a name, an attribute of a namespace, or a tuple of these.
struct Target {
  Symbol symbol = 0;
  std::string attribute;
  std::vector<Target> items;
};

struct Parameter {
  Symbol symbol;
  std::string name;
  ExpressionPtr fallback;
};

/// The parts that macros and call blocks share.
struct Callable {
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  std::optional<Symbol> varargs, kwargs, caller;  // where the template reads them
};

struct Text {
  std::string text;
};
struct Output {
  ExpressionPtr expression;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  Block otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, condition;
  Block body, otherwise;
  Symbol loop;
  bool recursive;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;
  Block body;
};
struct Macro {
  Symbol symbol;
  std::shared_ptr<const Callable> callable;
};
struct CallBlock {
  std::shared_ptr<const Callable> callable;
  ExpressionPtr call;
};
struct FilterBlock {
  ExpressionPtr filter;
  Block body;
};
struct With {
  std::vector<Set> assignments;
  Block body;
};
struct Generation {
  Block body;
};
struct Do {
  ExpressionPtr expression;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 0;
  std::variant<Text, Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Generation, Do, Break,
               Continue>
      node;
};

struct Program {
  Block body;
  std::vector<std::string> names;
};

}  // namespace jerboa::jinja
