#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jerboa/text/template_limits.h>

#include "text/jinja_ast.h"

namespace jerboa::jinja {

/// The variables of a block. A macro keeps the scope it was defined in alive.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> variables;

  const Value* find(Symbol symbol) const;
  void set(Symbol symbol, Value value);
};

/// Runs a program once.
class Interpreter {
 public:
  using TimePoint = std::chrono::system_clock::time_point;

  Interpreter(const Program& program, const TemplateLimits& limits, TimePoint now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Sets a variable to the result of `value`, which is not called if the template does not use the name.
  void define(std::string_view name, const std::function<Value()>& value);
  /// The text of the template.
  std::string run();
  /// The ranges [begin, end) of the text inside {% generation %} blocks.
  const std::vector<std::pair<std::size_t, std::size_t>>& generated() const { return generated_; }

  // Used by filters, methods and objects.
  Value call(const Value& callee, Arguments arguments);
  Value call_macro(const Callable& callable, const std::shared_ptr<Scope>& closure, Arguments arguments);
  /// Runs a recursive loop again, over `items`; returns its text.
  Value run_loop_again(const For& loop, const std::shared_ptr<Scope>& outer, const Value& items, int depth);
  /// Counts bytes about to be built against the limit.
  void charge(std::size_t bytes);
  void step();
  /// A container that a template changed may contain itself, so it is cleared after the run and can be freed.
  void changed(const Value& container) { changed_.push_back(container); }
  TimePoint now() const { return now_; }

 private:
  enum class Flow { normal, stop, next };

  Value charged(Value value);
  Flow execute(const Block& block);
  Flow execute(const Statement& statement);
  Flow execute_for(const For& loop);
  Flow loop_over(const For& loop, std::vector<Value> items, int depth);
  std::string capture(const Block& block);
  void write(std::string_view text);
  void assign(const Target& target, const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate(const Expression& expression, const Value& filter_input);
  Value evaluate(const Name& name);
  Value evaluate(const Sequence& sequence);
  Value evaluate(const Mapping& mapping);
  Value evaluate(const Unary& unary);
  Value evaluate(const Comparison& comparison);
  Value evaluate(const Concatenation& concatenation);
  Value evaluate(const Slice& slice);
  Value evaluate(const Call& call, int line);
  bool evaluate(const Test& test, int line);
  Arguments evaluate(const CallArguments& arguments);

  const Program& program_;
  TemplateLimits limits_;
  TimePoint now_;
  std::shared_ptr<Scope> globals_, scope_;
  std::string output_;
  bool at_root_ = true;  // output_ is the text of the whole template, not of a macro or block
  std::vector<std::pair<std::size_t, std::size_t>> generated_;
  std::size_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  std::vector<Value> changed_;
  std::vector<std::shared_ptr<Scope>> closures_;
};

/// The predefined names: range, namespace, dict, joiner, raise_exception, strftime_now …; null if there is no such
/// name.
const Value* find_builtin(std::string_view name);

}  // namespace jerboa::jinja
