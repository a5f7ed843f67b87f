#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/json.h>

namespace jerboa {

/// A pattern or schema that is malformed or not supported, or a token that a constraint does not allow.
class ConstraintError : public Error {
 public:
  using Error::Error;
};

/// One bit per token.
class TokenMask {
 public:
  explicit TokenMask(std::size_t tokens = 0) : words_((tokens + 63) / 64) {}
  void allow(std::size_t token) { words_[token / 64] |= std::uint64_t{1} << (token % 64); }
  void set(std::size_t token, bool allowed) {
    const std::uint64_t bit = std::uint64_t{1} << (token % 64);
    words_[token / 64] = allowed ? words_[token / 64] | bit : words_[token / 64] & ~bit;
  }
  bool allows(std::size_t token) const { return (words_[token / 64] >> (token % 64) & 1) != 0; }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

/// Decides which tokens may come next. A Sampler queries it before each draw and reports the token drawn. Implement
/// your own to control generation by something other than the grammars below.
class Constraint {
 public:
  static constexpr int unlimited = std::numeric_limits<int>::max();

  virtual ~Constraint() = default;
  /// The tokens that may come next, end tokens among them once complete(). With a limit on the remaining tokens
  /// (including this one), only those after which the text can still be completed within the limit.
  virtual const TokenMask& allowed(int tokens_left = unlimited) = 0;
  /// Throws ConstraintError if the token is not allowed.
  virtual void accept(int token) = 0;
  /// The text so far is complete: generation may end here.
  virtual bool complete() const = 0;
  virtual void reset() = 0;
};

/// The bytes of every token, arranged so that computing a mask over all of them is fast. Immutable; share one per
/// tokenizer.
class Vocabulary {
 public:
  /// A token without bytes (a special token) is never allowed, except for the end tokens once a constraint is complete.
  Vocabulary(std::vector<std::string> tokens, std::vector<int> end_tokens);
  ~Vocabulary();
  std::size_t size() const { return bytes_.size(); }
  const std::string& bytes(int token) const { return bytes_[static_cast<std::size_t>(token)]; }
  const std::vector<int>& end_tokens() const { return end_tokens_; }
  const class TokenTrie& trie() const { return *trie_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<int> end_tokens_;
  std::unique_ptr<class TokenTrie> trie_;
};

class Grammar;

/// A grammar of the texts that match a regular expression in full. The syntax is JavaScript's, over Unicode: groups,
/// alternatives, classes, \d \w \s \p{L}, *, +, ?, {m,n}. Look-around, back-references and anchors inside are refused.
std::shared_ptr<const Grammar> compile_regex(std::string_view pattern);

enum class JsonWhitespace {
  none,    ///< {"a":1,"b":2}
  spaced,  ///< also a space after : and ,
  any      ///< also line breaks and indentation, up to 40 characters in one place
};

struct JsonSchemaOptions {
  JsonWhitespace whitespace = JsonWhitespace::spaced;
  /// If a schema lists properties but does not mention additionalProperties, allow others too.
  bool open_objects = false;
};

/// A grammar of the JSON texts that are valid under a schema (draft 2020-12), or of a subset if the schema is
/// permissive: properties come in the schema's order; numbers have at most 18 digits before and 17 after the point. An
/// unsupported keyword is refused with a ConstraintError that names it and its location: "#/properties/x: 'not' …".
std::shared_ptr<const Grammar> compile_json_schema(const JsonValue& schema, const JsonSchemaOptions& options = {});
/// The same from the schema's text.
std::shared_ptr<const Grammar> compile_json_schema_text(std::string_view schema, const JsonSchemaOptions& options = {});

/// Restricts generated text to a grammar. Caches the masks it computes; reset() starts over but keeps the cache.
///
///     auto grammar = compile_json_schema_text(R"({"type": "object", "properties": {"name": {"type": "string"}}})");
///     sampler.constrain(make_constraint(grammar, vocabulary));
std::unique_ptr<Constraint> make_constraint(std::shared_ptr<const Grammar> grammar,
                                            std::shared_ptr<const Vocabulary> vocabulary);

}  // namespace jerboa
