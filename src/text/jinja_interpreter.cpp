#include "text/jinja_interpreter.h"

#include <fmt/core.h>
#include <utility>

#include "text/jinja_objects.h"
#include "text/jinja_operators.h"

namespace jerboa::jinja {

const Value* Scope::find(Symbol symbol) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get())
    for (const auto& [name, value] : scope->variables)
      if (name == symbol) return &value;
  return nullptr;
}

void Scope::set(Symbol symbol, Value value) {
  for (auto& [name, old] : variables) {
    if (name != symbol) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(symbol, std::move(value));
}

Interpreter::Interpreter(const Program& program, const TemplateLimits& limits, TimePoint now)
    : program_(program), limits_(limits), now_(now), globals_(std::make_shared<Scope>()), scope_(globals_) {}

Interpreter::~Interpreter() {
  // Break reference cycles: a macro in its own scope, or a list that contains itself.
  for (const auto& scope : closures_) scope->variables.clear();
  for (const Value& container : changed_) {
    if (container.is_list()) container.list()->items.clear();
    if (container.is_dict()) container.dict()->clear();
    if (container.is_object()) container.object()->clear();
  }
}

void Interpreter::define(std::string_view name, const std::function<Value()>& value) {
  for (std::size_t i = 0; i < program_.names.size(); ++i)
    if (program_.names[i] == name) return globals_->set(static_cast<Symbol>(i), value());
}

std::string Interpreter::run() {
  try {
    execute(program_.body);
  } catch (const Fault& fault) {
    throw TemplateError(line_, fault.what());
  }
  return std::move(output_);
}

void Interpreter::step() {
  if (++steps_ > limits_.steps) throw Fault(fmt::format("stopped after {} steps", limits_.steps));
}

void Interpreter::charge(std::size_t bytes) {
  if (bytes > limits_.bytes - bytes_) throw Fault(fmt::format("stopped after building {} bytes", limits_.bytes));
  bytes_ += bytes;
}

Value Interpreter::charged(Value value) {
  if (value.is_string()) charge(value.text().size());
  if (value.is_list()) charge(value.list()->items.size() * sizeof(Value));
  if (value.is_dict()) charge(value.dict()->size() * 2 * sizeof(Value));
  return value;
}

void Interpreter::write(std::string_view text) {
  charge(text.size());
  output_ += text;
}

Interpreter::Flow Interpreter::execute(const Block& block) {
  for (const Statement& statement : block)
    if (const Flow flow = execute(statement); flow != Flow::normal) return flow;
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  line_ = statement.line;
  step();
  if (const auto* text = std::get_if<Text>(&statement.node)) {
    write(text->text);
  } else if (const auto* output = std::get_if<Output>(&statement.node)) {
    const Value value = evaluate(*output->expression);
    value.is_string() ? write(value.text()) : write(value.str());
  } else if (const auto* branch = std::get_if<If>(&statement.node)) {
    for (const auto& [condition, body] : branch->branches)
      if (evaluate(*condition).truthy()) return execute(body);
    return execute(branch->otherwise);
  } else if (const auto* loop = std::get_if<For>(&statement.node)) {
    return execute_for(*loop);
  } else if (const auto* set = std::get_if<Set>(&statement.node)) {
    assign(set->target, evaluate(*set->value));
  } else if (const auto* set_block = std::get_if<SetBlock>(&statement.node)) {
    const Value body = capture(set_block->body);
    assign(set_block->target, set_block->filter ? evaluate(*set_block->filter, body) : body);
  } else if (const auto* macro = std::get_if<Macro>(&statement.node)) {
    closures_.push_back(scope_);
    scope_->set(macro->symbol, std::make_shared<MacroObject>(macro->callable, scope_));
  } else if (const auto* call_block = std::get_if<CallBlock>(&statement.node)) {
    const auto& call_node = std::get<Call>(call_block->call->node);
    const Value callee = evaluate(*call_node.callee);
    Arguments arguments = evaluate(call_node.arguments);
    closures_.push_back(scope_);
    arguments.named.emplace_back("caller", std::make_shared<MacroObject>(call_block->callable, scope_));
    write(call(callee, std::move(arguments)).str());
  } else if (const auto* filter = std::get_if<FilterBlock>(&statement.node)) {
    const Value body = capture(filter->body);
    write(evaluate(*filter->filter, body).str());
  } else if (const auto* with = std::get_if<With>(&statement.node)) {
    auto inner = std::make_shared<Scope>(Scope{scope_, {}});
    std::vector<Value> values;
    for (const Set& item : with->assignments) values.push_back(evaluate(*item.value));
    const auto outer = std::exchange(scope_, inner);
    for (std::size_t i = 0; i < values.size(); ++i) assign(with->assignments[i].target, values[i]);
    const Flow flow = execute(with->body);
    scope_ = outer;
    return flow;
  } else if (const auto* generation = std::get_if<Generation>(&statement.node)) {
    const auto outer = std::exchange(scope_, std::make_shared<Scope>(Scope{scope_, {}}));
    const std::size_t begin = output_.size();
    const Flow flow = execute(generation->body);
    if (at_root_) generated_.emplace_back(begin, output_.size());
    scope_ = outer;
    return flow;
  } else if (const auto* action = std::get_if<Do>(&statement.node)) {
    evaluate(*action->expression);
  } else {
    return std::holds_alternative<Break>(statement.node) ? Flow::stop : Flow::next;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute_for(const For& loop) {
  std::vector<Value> items = iterate(evaluate(*loop.iterable));
  return loop_over(loop, std::move(items), 1);
}

Interpreter::Flow Interpreter::loop_over(const For& loop, std::vector<Value> items, int depth) {
  const auto outer = scope_;
  charge(items.size() * sizeof(Value));
  if (loop.condition) {
    // The condition sees the loop's variables but not `loop`.
    std::vector<Value> chosen;
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    for (Value& item : items) {
      assign(loop.target, item);
      if (evaluate(*loop.condition).truthy()) chosen.push_back(std::move(item));
    }
    scope_ = outer;
    items = std::move(chosen);
  }
  if (items.empty()) return execute(loop.otherwise);

  auto state = std::make_shared<LoopObject>(loop, outer, std::move(items), depth);
  auto inner = std::make_shared<Scope>(Scope{outer, {}});
  for (; state->index() < state->items().size(); state->advance()) {
    step();
    if (inner.use_count() > 1)
      inner = std::make_shared<Scope>(Scope{outer, {}});
    else
      inner->variables.clear();
    scope_ = inner;
    inner->set(loop.loop, state);
    assign(loop.target, state->items()[state->index()]);
    const Flow flow = execute(loop.body);
    scope_ = outer;
    if (flow == Flow::stop) break;
  }
  return Flow::normal;
}

Value Interpreter::run_loop_again(const For& loop, const std::shared_ptr<Scope>& outer, const Value& items, int depth) {
  if (++depth_ > limits_.depth) throw Fault(fmt::format("calls are nested more than {} deep", limits_.depth));
  const auto caller = std::exchange(scope_, outer);
  std::string text = std::exchange(output_, {});
  const bool root = std::exchange(at_root_, false);
  loop_over(loop, iterate(items), depth);
  at_root_ = root;
  std::swap(text, output_);
  scope_ = caller;
  --depth_;
  return text;
}

std::string Interpreter::capture(const Block& block) {
  const auto outer = std::exchange(scope_, std::make_shared<Scope>(Scope{scope_, {}}));
  std::string text = std::exchange(output_, {});
  const bool root = std::exchange(at_root_, false);
  execute(block);
  at_root_ = root;
  std::swap(text, output_);
  scope_ = outer;
  return text;
}

Value Interpreter::call_macro(const Callable& callable, const std::shared_ptr<Scope>& closure, Arguments arguments) {
  if (++depth_ > limits_.depth) throw Fault(fmt::format("calls are nested more than {} deep", limits_.depth));
  auto local = std::make_shared<Scope>(Scope{closure, {}});
  const auto caller_scope = std::exchange(scope_, local);
  const auto& parameters = callable.parameters;
  const std::size_t given = std::min(arguments.positional.size(), parameters.size());
  for (std::size_t i = 0; i < given; ++i) local->set(parameters[i].symbol, std::move(arguments.positional[i]));

  auto keywords = std::make_shared<Dict>();
  std::vector<bool> set(parameters.size(), false);
  for (auto& [name, value] : arguments.named) {
    std::size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i < given) throw Fault(fmt::format("macro '{}' got '{}' twice", callable.name, name));
    if (i < parameters.size()) {
      set[i] = true;
      local->set(parameters[i].symbol, std::move(value));
    } else if (name == "caller" && callable.caller) {
      local->set(*callable.caller, std::move(value));
    } else if (callable.kwargs) {
      keywords->set(name, std::move(value));
    } else {
      throw Fault(fmt::format("macro '{}' takes no argument '{}'", callable.name, name));
    }
  }
  for (std::size_t i = given; i < parameters.size(); ++i) {
    if (set[i]) continue;
    const Parameter& parameter = parameters[i];
    local->set(parameter.symbol, parameter.fallback
                                     ? evaluate(*parameter.fallback)
                                     : undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
  }
  if (callable.varargs) {
    std::vector<Value> surplus(arguments.positional.begin() + static_cast<std::ptrdiff_t>(given),
                               arguments.positional.end());
    local->set(*callable.varargs, Value::tuple(std::move(surplus)));
  } else if (arguments.positional.size() > given) {
    throw Fault(fmt::format("macro '{}' takes at most {} arguments, not {}", callable.name, parameters.size(),
                            arguments.positional.size()));
  }
  if (callable.kwargs) local->set(*callable.kwargs, keywords);

  std::string text = std::exchange(output_, {});
  const bool root = std::exchange(at_root_, false);
  execute(callable.body);
  at_root_ = root;
  std::swap(text, output_);
  scope_ = caller_scope;
  --depth_;
  return text;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.items.empty()) {
    const std::vector<Value> items = iterate(value);
    if (items.size() != target.items.size())
      throw Fault(fmt::format("cannot unpack {} values into {} names", items.size(), target.items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
  } else if (target.attribute.empty()) {
    scope_->set(target.symbol, value);
  } else {
    const std::string& name = program_.names[static_cast<std::size_t>(target.symbol)];
    const Value* object = scope_->find(target.symbol);
    if (object == nullptr) throw Fault(fmt::format("'{}' is undefined", name));
    if (!object->is_object())
      throw Fault(fmt::format("cannot assign an attribute of '{}': only a namespace has those", name));
    changed(*object);
    object->object()->set_attribute(target.attribute, value);
  }
}

Value Interpreter::evaluate(const Expression& expression) { return evaluate(expression, Value()); }

Value Interpreter::evaluate(const Expression& expression, const Value& filter_input) {
  step();
  const int line = expression.line;
  line_ = line;
  const auto& node = expression.node;
  if (const auto* literal = std::get_if<Literal>(&node)) return literal->value;
  if (const auto* name = std::get_if<Name>(&node)) return evaluate(*name);
  if (const auto* attribute = std::get_if<Attribute>(&node)) {
    const Value object = evaluate(*attribute->object);
    line_ = line;
    return get_attribute(object, attribute->name);
  }
  if (const auto* subscript = std::get_if<Subscript>(&node)) {
    const Value object = evaluate(*subscript->object);
    const Value index = evaluate(*subscript->index);
    line_ = line;
    return get_item(object, index);
  }
  if (const auto* filter = std::get_if<Filter>(&node)) {
    const Value input = filter->input ? evaluate(*filter->input, filter_input) : filter_input;
    Arguments arguments = evaluate(filter->arguments);
    line_ = line;
    if (filter->function == nullptr) throw Fault(fmt::format("unknown filter '{}'", filter->name));
    return charged(filter->function(*this, input, arguments));
  }
  if (const auto* test = std::get_if<Test>(&node)) return evaluate(*test, line);
  if (const auto* call_node = std::get_if<Call>(&node)) return evaluate(*call_node, line);
  if (const auto* comparison = std::get_if<Comparison>(&node)) return evaluate(*comparison);
  if (const auto* logical = std::get_if<Logical>(&node)) {
    Value left = evaluate(*logical->left);
    return left.truthy() == logical->conjunction ? evaluate(*logical->right) : left;
  }
  if (const auto* conditional = std::get_if<Conditional>(&node)) {
    if (evaluate(*conditional->condition).truthy()) return evaluate(*conditional->then);
    if (conditional->otherwise) return evaluate(*conditional->otherwise);
    return undefined("the inline if has no else, and its condition is false");
  }
  if (const auto* binary = std::get_if<Binary>(&node)) {
    const Value left = evaluate(*binary->left);
    const Value right = evaluate(*binary->right);
    line_ = line;
    return arithmetic(*this, binary->op, left, right);
  }
  if (const auto* concatenation = std::get_if<Concatenation>(&node)) return evaluate(*concatenation);
  if (const auto* unary = std::get_if<Unary>(&node)) return evaluate(*unary);
  if (const auto* slice = std::get_if<Slice>(&node)) return evaluate(*slice);
  if (const auto* sequence = std::get_if<Sequence>(&node)) return evaluate(*sequence);
  return evaluate(std::get<Mapping>(node));
}

Value Interpreter::evaluate(const Name& name) {
  if (const Value* value = scope_->find(name.symbol)) return *value;
  const std::string& text = program_.names[static_cast<std::size_t>(name.symbol)];
  if (const Value* value = find_builtin(text)) return *value;
  return undefined(fmt::format("'{}' is undefined", text));
}

Value Interpreter::evaluate(const Sequence& sequence) {
  std::vector<Value> items;
  items.reserve(sequence.items.size());
  charge(sequence.items.size() * sizeof(Value));
  for (const auto& item : sequence.items) items.push_back(evaluate(*item));
  return sequence.tuple ? Value::tuple(std::move(items)) : Value(std::move(items));
}

Value Interpreter::evaluate(const Mapping& mapping) {
  auto dict = std::make_shared<Dict>();
  charge(mapping.entries.size() * 2 * sizeof(Value));
  for (const auto& [key, item] : mapping.entries) {
    Value name = evaluate(*key);
    dict->set(std::move(name), evaluate(*item));
  }
  return dict;
}

Value Interpreter::evaluate(const Unary& unary) {
  const Value operand = evaluate(*unary.operand);
  if (unary.op == UnaryOp::logical_not) return !operand.truthy();
  if (operand.is_undefined()) throw Fault(*operand.undefined().what);
  if (!operand.is_number()) throw Fault(fmt::format("a '{}' has no sign", operand.type_name()));
  if (unary.op == UnaryOp::negative) return negate(operand);
  return operand.is_bool() ? Value(operand.integer()) : operand;
}

Value Interpreter::evaluate(const Comparison& comparison) {
  Value left = evaluate(*comparison.first);
  for (const auto& [op, operand] : comparison.rest) {
    Value right = evaluate(*operand);
    if (!compare_with(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate(const Concatenation& concatenation) {
  std::string text;
  for (const auto& part : concatenation.parts) {
    const Value value = evaluate(*part);
    value.is_string() ? text += value.text() : text += value.str();
  }
  charge(text.size());
  return text;
}

Value Interpreter::evaluate(const Slice& slice) {
  const Value object = evaluate(*slice.object);
  const auto bound = [&](const ExpressionPtr& part) -> std::optional<std::int64_t> {
    if (!part) return std::nullopt;
    const Value value = evaluate(*part);
    if (value.is_none()) return std::nullopt;
    if (!value.is_integral()) throw Fault(fmt::format("a slice needs integers, not '{}'", value.type_name()));
    return value.integer();
  };
  const auto start = bound(slice.start);
  const auto stop = bound(slice.stop);
  const auto step_size = bound(slice.step).value_or(1);
  return charged(get_slice(object, start, stop, step_size));
}

Arguments Interpreter::evaluate(const CallArguments& arguments) {
  Arguments out;
  out.positional.reserve(arguments.positional.size());
  for (const auto& item : arguments.positional) out.positional.push_back(evaluate(*item));
  if (arguments.star)
    for (Value& item : iterate(evaluate(*arguments.star))) out.positional.push_back(std::move(item));
  for (const auto& [name, item] : arguments.named) out.named.emplace_back(name, evaluate(*item));
  if (arguments.double_star) {
    const Value dict = evaluate(*arguments.double_star);
    if (!dict.is_dict()) throw Fault(fmt::format("'**' needs a dict, not '{}'", dict.type_name()));
    for (const auto& [key, item] : dict.dict()->entries()) out.named.emplace_back(key.str(), item);
  }
  return out;
}

Value Interpreter::evaluate(const Call& call_node, int line) {
  // object.method(…) is by far the most common call: no bound method is made for it.
  if (const auto* attribute = std::get_if<Attribute>(&call_node.callee->node)) {
    const Value object = evaluate(*attribute->object);
    if (has_method(object, attribute->name)) {
      Arguments arguments = evaluate(call_node.arguments);
      line_ = line;
      return charged(call_method(*this, object, attribute->name, std::move(arguments)));
    }
    line_ = line;
    const Value callee = get_attribute(object, attribute->name);
    if (callee.is_undefined()) throw Fault(fmt::format("'{}' has no method '{}'", object.type_name(), attribute->name));
    Arguments arguments = evaluate(call_node.arguments);
    line_ = line;
    return call(callee, std::move(arguments));
  }
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate(call_node.arguments);
  line_ = line;
  return call(callee, std::move(arguments));
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) throw Fault(*callee.undefined().what);
  if (!callee.callable()) throw Fault(fmt::format("'{}' cannot be called", callee.type_name()));
  return callee.object()->call(*this, arguments);
}

bool Interpreter::evaluate(const Test& test, int line) {
  const Value input = evaluate(*test.input);
  Arguments arguments = evaluate(test.arguments);
  line_ = line;
  if (test.function == nullptr) throw Fault(fmt::format("unknown test '{}'", test.name));
  return test.function(*this, input, arguments) != test.negated;
}

}  // namespace jerboa::jinja
