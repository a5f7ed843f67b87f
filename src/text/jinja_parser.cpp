#include "text/jinja_parser.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <initializer_list>
#include <unordered_map>
#include <utility>

#include <jerboa/text/template_limits.h>

#include "text/jinja_filters.h"
#include "text/jinja_lexer.h"

namespace jerboa::jinja {
namespace {

constexpr int max_expression_depth = 150;
constexpr int max_block_depth = 60;

int depth_of(const ExpressionPtr& expression) { return expression ? expression->depth : 0; }

int depth_of(const CallArguments& arguments) {
  int depth = std::max(depth_of(arguments.star), depth_of(arguments.double_star));
  for (const auto& item : arguments.positional) depth = std::max(depth, item->depth);
  for (const auto& item : arguments.named) depth = std::max(depth, item.second->depth);
  return depth;
}

// Counts a level of nesting during its lifetime.
class Nesting {
 public:
  Nesting(int& level, int limit, int line, const char* what) : level_(level) {
    if (++level_ > limit) {
      --level_;
      throw TemplateError(line, fmt::format("{} are nested more than {} deep", what, limit));
    }
  }
  ~Nesting() { --level_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& level_;
};

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Program run() {
    Program program;
    program.body = block({});
    // A macro accepts surplus arguments only if the template reads them.
    program.names = std::move(names_);
    return program;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  const Token& current() const { return tokens_[position_]; }
  const Token& ahead() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  const Token& next() { return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_]; }

  bool is_op(std::string_view text) const { return current().kind == TokenKind::op && current().text == text; }
  bool is_name(std::string_view text) const { return current().kind == TokenKind::name && current().text == text; }
  bool is_name(Words words) const {
    return current().kind == TokenKind::name && std::find(words.begin(), words.end(), current().text) != words.end();
  }
  bool take_op(std::string_view text) { return is_op(text) && (next(), true); }
  bool take_name(std::string_view text) { return is_name(text) && (next(), true); }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::data: return "text";
      case TokenKind::variable_begin: return "'{{'";
      case TokenKind::variable_end: return "'}}'";
      case TokenKind::block_begin: return "'{%'";
      case TokenKind::block_end: return "'%}'";
      case TokenKind::end: return "the end of the template";
      case TokenKind::string: return "a string";
      default: return "'" + token.text + "'";
    }
  }

  [[noreturn]] void fail_expecting(std::string_view wanted) const {
    throw TemplateError(line(), fmt::format("expected {}, found {}", wanted, describe(current())));
  }
  void expect_op(std::string_view text) {
    if (!take_op(text)) fail_expecting(fmt::format("'{}'", text));
  }
  void expect(TokenKind kind, std::string_view wanted) {
    if (current().kind != kind) fail_expecting(wanted);
    next();
  }
  std::string expect_name() {
    if (current().kind != TokenKind::name) fail_expecting("a name");
    return next().text;
  }

  Symbol symbol(const std::string& name) {
    const auto [found, added] = symbols_.try_emplace(name, static_cast<Symbol>(names_.size()));
    if (added) names_.push_back(name);
    return found->second;
  }

  template <typename Node>
  ExpressionPtr make(int at, int depth, Node node) {
    if (depth >= max_expression_depth)
      throw TemplateError(at, fmt::format("expressions are nested more than {} deep", max_expression_depth));
    return std::make_unique<Expression>(Expression{at, depth + 1, std::move(node)});
  }

  // ---- statements

  // Parses up to a block tag that begins with one of `ends`; its name becomes the current token.
  Block block(Words ends) {
    const Nesting nesting(block_depth_, max_block_depth, line(), "blocks");
    Block out;
    for (;;) {
      const int at = line();
      switch (current().kind) {
        case TokenKind::data: out.push_back({at, Text{next().text}}); break;
        case TokenKind::variable_begin: {
          next();
          ExpressionPtr value = tuple_or_expression(true);
          expect(TokenKind::variable_end, "'}}'");
          out.push_back({at, Output{std::move(value)}});
          break;
        }
        case TokenKind::block_begin: {
          next();
          if (is_name(ends)) return out;
          Statement parsed = statement();
          parsed.line = at;
          out.push_back(std::move(parsed));
          break;
        }
        default:
          if (ends.size() == 0 && current().kind == TokenKind::end) return out;
          fail_expecting(ends.size() == 0 ? "a tag" : fmt::format("'{}'", *(ends.end() - 1)));
      }
    }
  }

  // Parses the rest of an end tag, from its name on.
  void end_tag() {
    next();
    end_of_tag();
  }
  void end_of_tag() { expect(TokenKind::block_end, "'%}'"); }

  Statement statement() {
    const int at = line();
    const std::string name = expect_name();
    if (name == "if") return {at, if_statement()};
    if (name == "for") return {at, for_statement()};
    if (name == "set") return set_statement(at);
    if (name == "macro") return {at, macro_statement()};
    if (name == "call") return {at, call_statement()};
    if (name == "filter") return {at, filter_statement()};
    if (name == "with") return {at, with_statement()};
    if (name == "generation") {
      end_of_tag();
      Block body = block({"endgeneration"});
      end_tag();
      return {at, Generation{std::move(body)}};
    }
    if (name == "do") {
      ExpressionPtr value = tuple_or_expression(true);
      end_of_tag();
      return {at, Do{std::move(value)}};
    }
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) throw TemplateError(at, fmt::format("'{}' outside of a loop", name));
      end_of_tag();
      if (name == "break") return {at, Break{}};
      return {at, Continue{}};
    }
    throw TemplateError(at, fmt::format("unknown tag '{}'", name));
  }

  If if_statement() {
    If out;
    for (;;) {
      ExpressionPtr condition = tuple_or_expression(false);
      end_of_tag();
      Block body = block({"elif", "else", "endif"});
      out.branches.emplace_back(std::move(condition), std::move(body));
      if (take_name("elif")) continue;
      if (take_name("else")) {
        end_of_tag();
        out.otherwise = block({"endif"});
      }
      end_tag();
      return out;
    }
  }

  For for_statement() {
    For out{};
    out.target = target(false);
    if (!take_name("in")) fail_expecting("'in'");
    out.iterable = tuple_or_expression(false, {"recursive", "if"});
    if (take_name("if")) out.condition = expression();
    out.recursive = take_name("recursive");
    out.loop = symbol("loop");
    end_of_tag();
    ++loop_depth_;
    out.body = block({"else", "endfor"});
    --loop_depth_;
    if (take_name("else")) {
      end_of_tag();
      out.otherwise = block({"endfor"});
    }
    end_tag();
    return out;
  }

  Statement set_statement(int at) {
    Target to = target(true);
    if (take_op("=")) {
      ExpressionPtr value = tuple_or_expression(true);
      end_of_tag();
      return {at, Set{std::move(to), std::move(value)}};
    }
    ExpressionPtr filter;
    while (take_op("|")) filter = one_filter(std::move(filter));
    end_of_tag();
    Block body = block({"endset"});
    end_tag();
    return {at, SetBlock{std::move(to), std::move(filter), std::move(body)}};
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> out;
    expect_op("(");
    while (!is_op(")")) {
      if (!out.empty()) expect_op(",");
      if (is_op(")")) break;
      Parameter parameter{};
      parameter.name = expect_name();
      parameter.symbol = symbol(parameter.name);
      if (take_op("="))
        parameter.fallback = expression();
      else if (!out.empty() && out.back().fallback)
        throw TemplateError(
            line(), fmt::format("parameter '{}' needs a default, as the one before it has one", parameter.name));
      out.push_back(std::move(parameter));
    }
    expect_op(")");
    return out;
  }

  std::shared_ptr<const Callable> callable(std::string name, std::vector<Parameter> parameters, std::string_view end) {
    auto out = std::make_shared<Callable>();
    out->name = std::move(name);
    out->parameters = std::move(parameters);
    const std::size_t first = position_;
    const int loops = std::exchange(loop_depth_, 0);
    out->body = block({end});
    loop_depth_ = loops;
    const auto read = [&](const char* special) -> std::optional<Symbol> {
      for (std::size_t i = first; i < position_; ++i)
        if (tokens_[i].kind == TokenKind::name && tokens_[i].text == special) return symbol(special);
      return std::nullopt;
    };
    out->varargs = read("varargs");
    out->kwargs = read("kwargs");
    out->caller = read("caller");
    end_tag();
    return out;
  }

  Macro macro_statement() {
    std::string name = expect_name();
    const Symbol at = symbol(name);
    auto declared = parameters();
    end_of_tag();
    return {at, callable(std::move(name), std::move(declared), "endmacro")};
  }

  CallBlock call_statement() {
    std::vector<Parameter> declared;
    if (is_op("(")) declared = parameters();
    const int at = line();
    ExpressionPtr call = expression();
    if (!std::holds_alternative<Call>(call->node)) throw TemplateError(at, "a call block needs a call");
    end_of_tag();
    auto body = callable("caller", std::move(declared), "endcall");
    return {std::move(body), std::move(call)};
  }

  FilterBlock filter_statement() {
    ExpressionPtr filter = one_filter(nullptr);
    while (take_op("|")) filter = one_filter(std::move(filter));
    end_of_tag();
    Block body = block({"endfilter"});
    end_tag();
    return {std::move(filter), std::move(body)};
  }

  With with_statement() {
    With out;
    while (current().kind != TokenKind::block_end) {
      if (!out.assignments.empty()) expect_op(",");
      Target to = target(false);
      expect_op("=");
      out.assignments.push_back({std::move(to), expression()});
    }
    end_of_tag();
    out.body = block({"endwith"});
    end_tag();
    return out;
  }

  Target target(bool with_attributes) {
    Target first = single_target(with_attributes);
    if (!is_op(",")) return first;
    Target out;
    out.items.push_back(std::move(first));
    while (take_op(",")) {
      if (is_op("=") || is_name("in") || current().kind == TokenKind::block_end) break;
      out.items.push_back(single_target(with_attributes));
    }
    return out;
  }

  Target single_target(bool with_attributes) {
    if (take_op("(")) {
      const Nesting nesting(expression_depth_, max_expression_depth, line(), "expressions");
      Target out = target(with_attributes);
      expect_op(")");
      return out;
    }
    const int at = line();
    const std::string name = expect_name();
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
      if (name == constant) throw TemplateError(at, fmt::format("cannot assign to '{}'", name));
    Target out;
    out.symbol = symbol(name);
    if (with_attributes && take_op(".")) out.attribute = expect_name();
    return out;
  }

  // ---- expressions, from the loosest binding to the tightest

  ExpressionPtr tuple_or_expression(bool with_condition, Words ends = {}) {
    const int at = line();
    std::vector<ExpressionPtr> items;
    int depth = 0;
    bool tuple = false;
    for (;;) {
      items.push_back(with_condition ? expression() : logical_or());
      depth = std::max(depth, items.back()->depth);
      if (!take_op(",")) break;
      tuple = true;
      if (current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || is_op(")") ||
          is_name(ends))
        break;
    }
    if (!tuple) return std::move(items.front());
    return make(at, depth, Sequence{std::move(items), true});
  }

  ExpressionPtr expression() {
    const Nesting nesting(expression_depth_, max_expression_depth, line(), "expressions");
    ExpressionPtr value = logical_or();
    while (is_name("if")) {
      const int at = line();
      next();
      ExpressionPtr condition = logical_or();
      ExpressionPtr otherwise;
      if (take_name("else")) otherwise = expression();
      const int depth = std::max({depth_of(value), depth_of(condition), depth_of(otherwise)});
      value = make(at, depth, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
    }
    return value;
  }

  ExpressionPtr logical_or() {
    ExpressionPtr left = logical_and();
    while (is_name("or")) {
      const int at = next().line;
      ExpressionPtr right = logical_and();
      const int depth = std::max(left->depth, right->depth);
      left = make(at, depth, Logical{false, std::move(left), std::move(right)});
    }
    return left;
  }

  ExpressionPtr logical_and() {
    ExpressionPtr left = logical_not();
    while (is_name("and")) {
      const int at = next().line;
      ExpressionPtr right = logical_not();
      const int depth = std::max(left->depth, right->depth);
      left = make(at, depth, Logical{true, std::move(left), std::move(right)});
    }
    return left;
  }

  ExpressionPtr logical_not() {
    if (!is_name("not")) return comparison();
    const Nesting nesting(expression_depth_, max_expression_depth, line(), "expressions");
    const int at = next().line;
    ExpressionPtr operand = logical_not();
    const int depth = operand->depth;
    return make(at, depth, Unary{UnaryOp::logical_not, std::move(operand)});
  }

  std::optional<CompareOp> compare_operator() {
    static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> table = {{{"==", CompareOp::equal},
                                                                                     {"!=", CompareOp::not_equal},
                                                                                     {"<", CompareOp::less},
                                                                                     {"<=", CompareOp::less_equal},
                                                                                     {">", CompareOp::greater},
                                                                                     {">=", CompareOp::greater_equal}}};
    for (const auto& [text, op] : table)
      if (take_op(text)) return op;
    if (take_name("in")) return CompareOp::in;
    if (is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
      next();
      next();
      return CompareOp::not_in;
    }
    return std::nullopt;
  }

  ExpressionPtr comparison() {
    const int at = line();
    ExpressionPtr first = sum();
    std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
    int depth = first->depth;
    while (const auto op = compare_operator()) {
      rest.emplace_back(*op, sum());
      depth = std::max(depth, rest.back().second->depth);
    }
    if (rest.empty()) return first;
    return make(at, depth, Comparison{std::move(first), std::move(rest)});
  }

  template <typename Next>
  ExpressionPtr left_associative(std::initializer_list<std::pair<std::string_view, BinaryOp>> table, Next operand) {
    ExpressionPtr left = operand();
    for (;;) {
      const auto found =
          std::find_if(table.begin(), table.end(), [&](const auto& candidate) { return is_op(candidate.first); });
      if (found == table.end()) return left;
      const int at = next().line;
      ExpressionPtr right = operand();
      const int depth = std::max(left->depth, right->depth);
      left = make(at, depth, Binary{found->second, std::move(left), std::move(right)});
    }
  }

  ExpressionPtr sum() {
    return left_associative({{"+", BinaryOp::add}, {"-", BinaryOp::subtract}}, [this] { return concatenation(); });
  }

  ExpressionPtr concatenation() {
    const int at = line();
    std::vector<ExpressionPtr> parts;
    parts.push_back(product());
    int depth = parts.back()->depth;
    while (take_op("~")) {
      parts.push_back(product());
      depth = std::max(depth, parts.back()->depth);
    }
    if (parts.size() == 1) return std::move(parts.front());
    return make(at, depth, Concatenation{std::move(parts)});
  }

  ExpressionPtr product() {
    return left_associative(
        {{"*", BinaryOp::multiply}, {"/", BinaryOp::divide}, {"//", BinaryOp::floor_divide}, {"%", BinaryOp::modulo}},
        [this] { return power(); });
  }

  ExpressionPtr power() {
    return left_associative({{"**", BinaryOp::power}}, [this] { return unary(true); });
  }

  ExpressionPtr unary(bool with_filters) {
    ExpressionPtr value;
    if (is_op("-") || is_op("+")) {
      const Nesting nesting(expression_depth_, max_expression_depth, line(), "expressions");
      const UnaryOp op = is_op("-") ? UnaryOp::negative : UnaryOp::positive;
      const int at = next().line;
      ExpressionPtr operand = unary(false);
      const int depth = operand->depth;
      value = make(at, depth, Unary{op, std::move(operand)});
    } else {
      value = primary();
    }
    value = postfix(std::move(value));
    return with_filters ? filters(std::move(value)) : std::move(value);
  }

  ExpressionPtr primary() {
    const Nesting nesting(expression_depth_, max_expression_depth, line(), "expressions");
    const int at = line();
    switch (current().kind) {
      case TokenKind::name: {
        const std::string name = next().text;
        if (name == "true" || name == "True") return make(at, 0, Literal{true});
        if (name == "false" || name == "False") return make(at, 0, Literal{false});
        if (name == "none" || name == "None") return make(at, 0, Literal{None{}});
        return make(at, 0, Name{symbol(name)});
      }
      case TokenKind::string: {
        std::string text;
        while (current().kind == TokenKind::string) text += next().text;
        return make(at, 0, Literal{std::move(text)});
      }
      case TokenKind::integer: return make(at, 0, Literal{next().integer});
      case TokenKind::floating: return make(at, 0, Literal{next().number});
      default: break;
    }
    if (take_op("(")) {
      if (take_op(")")) return make(at, 0, Sequence{{}, true});
      ExpressionPtr value = tuple_or_expression(true);
      expect_op(")");
      return value;
    }
    if (take_op("[")) {
      Sequence out{{}, false};
      int depth = 0;
      while (!is_op("]")) {
        if (!out.items.empty()) expect_op(",");
        if (is_op("]")) break;
        out.items.push_back(expression());
        depth = std::max(depth, out.items.back()->depth);
      }
      expect_op("]");
      return make(at, depth, std::move(out));
    }
    if (take_op("{")) {
      Mapping out;
      int depth = 0;
      while (!is_op("}")) {
        if (!out.entries.empty()) expect_op(",");
        if (is_op("}")) break;
        ExpressionPtr key = expression();
        expect_op(":");
        ExpressionPtr value = expression();
        depth = std::max({depth, key->depth, value->depth});
        out.entries.emplace_back(std::move(key), std::move(value));
      }
      expect_op("}");
      return make(at, depth, std::move(out));
    }
    fail_expecting("an expression");
  }

  ExpressionPtr postfix(ExpressionPtr value) {
    for (;;) {
      const int at = line();
      const int depth = value->depth;
      if (take_op(".")) {
        if (current().kind == TokenKind::integer) {
          ExpressionPtr index = make(at, 0, Literal{next().integer});
          value = make(at, depth, Subscript{std::move(value), std::move(index)});
        } else {
          value = make(at, depth, Attribute{std::move(value), expect_name()});
        }
      } else if (take_op("[")) {
        value = subscript(std::move(value), at);
      } else if (is_op("(")) {
        value = call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr object, int at) {
    ExpressionPtr start, stop, step;
    bool slice = false;
    if (!is_op(":")) start = tuple_or_expression(true);
    if (take_op(":")) {
      slice = true;
      if (!is_op("]") && !is_op(":")) stop = expression();
      if (take_op(":") && !is_op("]")) step = expression();
    }
    expect_op("]");
    const int depth = std::max({object->depth, depth_of(start), depth_of(stop), depth_of(step)});
    if (!slice) return make(at, depth, Subscript{std::move(object), std::move(start)});
    return make(at, depth, Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
  }

  CallArguments arguments() {
    CallArguments out;
    expect_op("(");
    bool first = true;
    while (!is_op(")")) {
      if (!first) expect_op(",");
      first = false;
      if (is_op(")")) break;
      if (take_op("**")) {
        out.double_star = expression();
      } else if (take_op("*")) {
        out.star = expression();
      } else if (current().kind == TokenKind::name && ahead().kind == TokenKind::op && ahead().text == "=") {
        std::string name = next().text;
        next();
        out.named.emplace_back(std::move(name), expression());
      } else {
        if (!out.named.empty()) throw TemplateError(line(), "a positional argument follows a named one");
        out.positional.push_back(expression());
      }
    }
    expect_op(")");
    return out;
  }

  ExpressionPtr call(ExpressionPtr callee) {
    const int at = line();
    CallArguments given = arguments();
    const int depth = std::max(callee->depth, depth_of(given));
    return make(at, depth, Call{std::move(callee), std::move(given)});
  }

  ExpressionPtr filters(ExpressionPtr value) {
    for (;;) {
      if (take_op("|"))
        value = one_filter(std::move(value));
      else if (is_name("is"))
        value = test(std::move(value));
      else if (is_op("("))
        value = call(std::move(value));
      else
        return value;
    }
  }

  ExpressionPtr one_filter(ExpressionPtr input) {
    const int at = line();
    std::string name = expect_name();
    while (take_op(".")) name += "." + expect_name();
    CallArguments given;
    if (is_op("(")) given = arguments();
    const int depth = std::max(depth_of(input), depth_of(given));
    const FilterFunction function = find_filter(name);
    return make(at, depth, Filter{std::move(name), function, std::move(input), std::move(given)});
  }

  // x is name, x is not name, x is name(arguments), x is name argument
  ExpressionPtr test(ExpressionPtr input) {
    const int at = next().line;
    const bool negated = take_name("not");
    std::string name = expect_name();
    CallArguments given;
    if (is_op("(")) {
      given = arguments();
    } else if (begins_test_argument()) {
      given.positional.push_back(postfix(primary()));
    }
    const int depth = std::max(input->depth, depth_of(given));
    const TestFunction function = find_test(name);
    return make(at, depth, Test{std::move(name), function, std::move(input), std::move(given), negated});
  }

  bool begins_test_argument() const {
    switch (current().kind) {
      case TokenKind::name: return !is_name({"else", "or", "and", "is", "if", "not", "in", "recursive"});
      case TokenKind::string:
      case TokenKind::integer:
      case TokenKind::floating: return true;
      default: return is_op("[") || is_op("{");
    }
  }

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int expression_depth_ = 0;
  int block_depth_ = 0;
  int loop_depth_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
  std::vector<std::string> names_;
};

}  // namespace

Program parse(std::string_view source) { return Parser(source).run(); }

}  // namespace jerboa::jinja
