#include "memory/chunks.h"

#include <algorithm>

#include "text/utf8.h"

namespace jerboa::memory {
namespace {

constexpr std::string_view white = " \t\r\n";

// A piece of text that is not split any further.
struct Piece {
  std::size_t begin = 0, end = 0;
  std::int64_t tokens = 0;
  bool begins_paragraph = false;
};

bool is_white(char c) { return white.find(c) != std::string_view::npos; }

// Full stops, exclamation and question marks of languages that do not write spaces after them.
bool ends_sentence_alone(char32_t code) { return code == 0x3002 || code == 0xFF01 || code == 0xFF1F; }

// The end of the sentence or line that begins at `begin`, including the white space after it.
std::size_t end_of_sentence(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (at < text.size()) {
    const utf8::Char c = utf8::decode(text, at);
    at += c.size;
    const bool may_end = c.code == '.' || c.code == '!' || c.code == '?';
    if (c.code == '\n' || ends_sentence_alone(c.code) || (may_end && at < text.size() && is_white(text[at]))) break;
  }
  while (at < text.size() && is_white(text[at])) ++at;
  return at;
}

std::size_t end_of_word(std::string_view text, std::size_t begin) {
  const std::size_t end = std::min(text.find_first_of(white, begin), text.size());
  return std::min(text.find_first_not_of(white, end), text.size());
}

class Splitter {
 public:
  Splitter(std::string_view text, const ChunkOptions& options) : text_(text), options_(options) {
    bool begins_paragraph = false;
    for (std::size_t at = std::min(text.find_first_not_of(white), text.size()); at < text.size();) {
      const std::size_t end = end_of_sentence(text, at), first = pieces_.size();
      add_sentence(at, end);
      pieces_[first].begins_paragraph = begins_paragraph;
      const std::string_view sentence = text.substr(at, end - at);
      begins_paragraph = std::count(sentence.begin(), sentence.end(), '\n') > 1;
      at = end;
    }
  }

  std::vector<Chunk> chunks() const {
    std::vector<Chunk> chunks;
    for (std::size_t first = 0, done = 0; done < pieces_.size();) {
      const std::size_t end = end_of_chunk(first, done);
      const std::string_view all = text_.substr(pieces_[first].begin, pieces_[end - 1].end - pieces_[first].begin);
      chunks.push_back({pieces_[first].begin, all.substr(0, all.find_last_not_of(white) + 1)});
      done = end;
      first = begin_of_next(first, end);
    }
    return chunks;
  }

 private:
  void add_sentence(std::size_t begin, std::size_t end) {
    if (add_if_short(begin, end)) return;
    for (std::size_t at = begin; at < end;) {
      const std::size_t next = std::min(end_of_word(text_, at), end);
      add_word(at, next);
      at = next;
    }
  }

  void add_word(std::size_t begin, std::size_t end) {
    if (add_if_short(begin, end)) return;
    std::size_t middle = begin + (end - begin) / 2;
    while (middle > begin && utf8::is_continuation(text_[middle])) --middle;
    if (middle == begin) return pieces_.push_back({begin, end, options_.tokens});  // a single character
    add_word(begin, middle);
    add_word(middle, end);
  }

  bool add_if_short(std::size_t begin, std::size_t end) {
    const std::int64_t tokens = options_.count(text_.substr(begin, end - begin));
    if (tokens <= options_.tokens) pieces_.push_back({begin, end, tokens});
    return tokens <= options_.tokens;
  }

  // Ensures that the chunk has at least one piece that no earlier chunk has.
  std::size_t end_of_chunk(std::size_t first, std::size_t done) const {
    std::int64_t tokens = 0;
    std::size_t end = first;
    for (; end < pieces_.size(); ++end) {
      const bool is_new = end > done;
      if (is_new && tokens + pieces_[end].tokens > options_.tokens) break;
      if (is_new && pieces_[end].begins_paragraph && tokens >= options_.tokens / 2) break;
      tokens += pieces_[end].tokens;
    }
    return end;
  }

  // The first piece of the chunk after [first, end). It repeats some of these pieces, provided that the next one fits
  // as well.
  std::size_t begin_of_next(std::size_t first, std::size_t end) const {
    if (end == pieces_.size()) return end;
    const std::int64_t room = std::min(options_.overlap, options_.tokens - pieces_[end].tokens);
    std::int64_t repeated = 0;
    std::size_t begin = end;
    while (begin > first + 1 && repeated + pieces_[begin - 1].tokens <= room) repeated += pieces_[--begin].tokens;
    return begin;
  }

  std::string_view text_;
  const ChunkOptions& options_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Chunk> split_text(std::string_view text, const ChunkOptions& options) {
  return Splitter(text, options).chunks();
}

}  // namespace jerboa::memory
