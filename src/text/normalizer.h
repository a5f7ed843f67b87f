#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/charsmap.h"
#include "text/json_view.h"
#include "text/pattern.h"
#include "text/unicode_form.h"

namespace jerboa {

/// The normalizers of tokenizer.json, each a step from text to text.
namespace normalizers {
struct Form {
  UnicodeForm form = UnicodeForm::nfc;
  void apply(AlignedText& text) const { normalize(text, form); }
};
struct Lowercase {
  void apply(AlignedText& text) const;
};
struct Strip {
  bool left = true;
  bool right = true;
  void apply(AlignedText& text) const;
};
struct StripAccents {
  void apply(AlignedText& text) const;
};
struct Replace {
  Pattern pattern;
  std::string content;
  void apply(AlignedText& text) const;
};
struct Prepend {
  std::string prepend;
  void apply(AlignedText& text) const;
};
struct Bert {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
  void apply(AlignedText& text) const;
};
struct Nmt {
  void apply(AlignedText& text) const;
};
struct ByteLevel {
  void apply(AlignedText& text) const;
};
struct Precompiled {
  std::shared_ptr<const Charsmap> charsmap;
  void apply(AlignedText& text) const { charsmap->apply(text); }
};
}  // namespace normalizers

/// A chain of normalizers; an empty one leaves text as it is.
class Normalizer {
 public:
  using Step = std::variant<normalizers::Form, normalizers::Lowercase, normalizers::Strip, normalizers::StripAccents,
                            normalizers::Replace, normalizers::Prepend, normalizers::Bert, normalizers::Nmt,
                            normalizers::ByteLevel, normalizers::Precompiled>;

  static Normalizer parse(const JsonView& json);

  void add(Step step) { steps_.push_back(std::move(step)); }
  void apply(AlignedText& text) const;
  std::string apply(std::string_view text) const;

 private:
  void parse_into(const JsonView& json, int depth);
  std::vector<Step> steps_;
};

}  // namespace jerboa
