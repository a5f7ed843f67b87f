#include <jerboa/base/error.h>
#include <jerboa/generate/text_form.h>

#include "generate/grammar.h"
#include "generate/json_schema.h"

namespace jerboa {
namespace {

// How many characters of `mark` match after `matched` of them and `next` have been read.
std::size_t matched_after(const std::u32string& mark, std::size_t matched, char32_t next) {
  for (std::size_t length = matched + 1; length > 0; --length)
    if (mark[length - 1] == next && mark.compare(0, length - 1, mark, matched - (length - 1), length - 1) == 0)
      return length;
  return 0;
}

// One state for each prefix of the mark that may have been read.
State add_until(Grammar& grammar, State from, const std::string& text) {
  const std::optional<std::u32string> characters = characters_of(text);
  if (!characters || characters->empty())
    throw ConstraintError(text.empty() ? "the mark that a text ends with is empty"
                                       : "the mark that a text ends with is not UTF-8");
  const std::u32string& mark = *characters;
  std::vector<State> states;
  for (std::size_t i = 0; i <= mark.size(); ++i) states.push_back(grammar.add_state());
  grammar.add_empty(from, states[0]);
  for (std::size_t i = 0; i < mark.size(); ++i) {
    CodePoints in_mark;
    for (const char32_t character : mark) in_mark.emplace_back(character, character);
    in_mark = normalize(in_mark);
    grammar.add_characters(states[i], states[0], complement(in_mark), Encoding::plain);
    for (const auto& [first, last] : in_mark)
      for (char32_t next = first; next <= last; ++next)
        grammar.add_characters(states[i], states[matched_after(mark, i, next)], {{next, next}}, Encoding::plain);
  }
  return states.back();
}

State add_form(Grammar& grammar, State from, const TextForm& form) {
  switch (form.kind) {
    case TextForm::Kind::text: return grammar.add_text(from, form.content);
    case TextForm::Kind::until: return add_until(grammar, from, form.content);
    case TextForm::Kind::json: {
      const State to = grammar.add_state();
      grammar.add_call(from, to, add_json_schema(grammar, form.schema, {}, form.content));
      return to;
    }
    case TextForm::Kind::sequence:
      for (const TextForm& part : form.parts) from = add_form(grammar, from, part);
      return from;
    case TextForm::Kind::any_of: break;
  }
  const State to = grammar.add_state();
  for (const TextForm& part : form.parts) {
    const State start = grammar.add_state();
    grammar.add_empty(from, start);
    grammar.add_empty(add_form(grammar, start, part), to);
  }
  return to;
}

}  // namespace

std::shared_ptr<const Grammar> compile_form(const TextForm& form) {
  auto grammar = std::make_shared<Grammar>();
  const Grammar::Rule rule = grammar->add_rule();
  grammar->add_empty(add_form(*grammar, rule.start, form), rule.end);
  grammar->finish(rule);
  return grammar;
}

}  // namespace jerboa
