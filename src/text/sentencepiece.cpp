#include "text/sentencepiece.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "text/byte_alphabet.h"
#include "text/protobuf.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

/// A piece of the vocabulary, with sentencepiece's numbers of kinds.
struct Piece {
  enum Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  std::string text;
  float score = 0;
  int kind = normal;
};

struct SentencePieceFile {
  std::vector<Piece> pieces;
  bool is_bpe = false;
  bool byte_fallback = false;
  std::int64_t bos = 1;
  std::int64_t eos = 2;
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

Piece read_piece(std::string_view message, std::string_view name) {
  Piece piece;
  for (ProtobufReader reader(message, name); reader.next();) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.real();
    if (reader.field() == 3) piece.kind = static_cast<int>(reader.number());
  }
  if (!utf8::is_valid(piece.text)) throw FileError(fmt::format("{}: a piece is not UTF-8", name));
  if (!std::isfinite(piece.score))
    throw FileError(fmt::format("{}: the score of {} is not a number", name, in_quotes(piece.text)));
  return piece;
}

SentencePieceFile read_sentencepiece(std::string_view content, std::string_view name) {
  SentencePieceFile file;
  for (ProtobufReader reader(content, name); reader.next();) {
    if (reader.field() == 1) {
      file.pieces.push_back(read_piece(reader.bytes(), name));
    } else if (reader.field() == 2) {  // TrainerSpec
      for (ProtobufReader trainer(reader.bytes(), name); trainer.next();) {
        if (trainer.field() == 3) {
          if (trainer.number() != 1 && trainer.number() != 2)
            throw FileError(
                fmt::format("{}: only unigram and BPE models are supported, not kind {}", name, trainer.number()));
          file.is_bpe = trainer.number() == 2;
        }
        if (trainer.field() == 35) file.byte_fallback = trainer.number() != 0;
        if (trainer.field() == 41) file.bos = static_cast<std::int32_t>(trainer.number());
        if (trainer.field() == 42) file.eos = static_cast<std::int32_t>(trainer.number());
      }
    } else if (reader.field() == 3) {  // NormalizerSpec
      for (ProtobufReader normalizer(reader.bytes(), name); normalizer.next();) {
        if (normalizer.field() == 2) file.charsmap = normalizer.bytes();
        if (normalizer.field() == 3) file.add_dummy_prefix = normalizer.number() != 0;
        if (normalizer.field() == 4) file.remove_extra_whitespaces = normalizer.number() != 0;
      }
    }
  }
  if (file.pieces.empty()) throw FileError(fmt::format("{}: there are no pieces in this sentencepiece model", name));
  return file;
}

// sentencepiece joins the pair whose piece has the best score, leftmost first, so pieces of equal score share a rank.
MergeTable merges_by_score(const std::vector<Piece>& pieces, const Vocab& vocab) {
  std::vector<float> scores;
  for (const Piece& piece : pieces)
    if (piece.kind == Piece::normal) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());

  struct Entry {
    TokenId left, right;
    MergeTable::Merge merge;
  };
  std::vector<Entry> entries;
  const auto is_normal = [&](TokenId id) {
    return id != no_token && pieces[static_cast<std::size_t>(id)].kind == Piece::normal;
  };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (piece.kind != Piece::normal) continue;
    const auto rank = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin();
    const std::string_view text = piece.text;
    // Pieces longer than any real one would make this quadratic in the size of the file.
    constexpr std::size_t longest = 512;
    if (text.size() > longest) continue;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if (utf8::is_continuation(text[cut])) continue;
      const TokenId left = vocab.find(text.substr(0, cut));
      const TokenId right = vocab.find(text.substr(cut));
      if (is_normal(left) && is_normal(right))
        entries.push_back({left, right, {static_cast<std::uint32_t>(rank), static_cast<TokenId>(i)}});
    }
  }
  MergeTable table(entries.size());
  for (const Entry& entry : entries) table.add(entry.left, entry.right, entry.merge);
  return table;
}

Tokenizer assemble(SentencePieceFile file, std::string_view name, bool add_bos, bool add_eos) {
  auto parts = std::make_shared<detail::TokenizerParts>();
  if (file.pieces.size() > static_cast<std::size_t>(max_token_id))
    throw FileError(fmt::format("{}: {} pieces are too many", name, file.pieces.size()));

  Vocab vocab;
  vocab.reserve(file.pieces.size(), 8 * file.pieces.size());
  std::vector<double> scores;
  std::vector<AddedToken> added;
  TokenId unk = no_token;
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const Piece& piece = file.pieces[i];
    const auto id = static_cast<TokenId>(i);
    vocab.add(piece.text, id);
    scores.push_back(piece.score);
    if (piece.kind == Piece::unknown) unk = id;
    if (piece.kind == Piece::control || piece.kind == Piece::unknown || piece.kind == Piece::user_defined)
      added.push_back({id, piece.text, false, false, false, false, piece.kind != Piece::user_defined});
  }

  auto& normalizer = parts->normalizer;
  if (!file.charsmap.empty())
    normalizer.add(
        normalizers::Precompiled{std::make_shared<Charsmap>(file.charsmap, fmt::format("{}: character map", name))});
  if (file.remove_extra_whitespaces) {
    normalizer.add(normalizers::Strip{true, true});
    normalizer.add(normalizers::Replace{Pattern(Regex(" {2,}")), " "});
  }
  if (file.add_dummy_prefix) normalizer.add(normalizers::Prepend{std::string(utf8::metaspace)});
  normalizer.add(normalizers::Replace{Pattern(std::string(" ")), std::string(utf8::metaspace)});
  parts->added = AddedTokens(std::move(added), normalizer);

  if (file.is_bpe) {
    BpeModel::Options options;
    options.has_unk = unk != no_token;
    if (options.has_unk) options.unk_token = vocab.text(unk);
    options.fuse_unk = true;
    options.byte_fallback = file.byte_fallback;
    MergeTable merges = merges_by_score(file.pieces, vocab);
    parts->model = BpeModel(std::move(vocab), std::move(merges), std::move(options));
  } else {
    parts->model = UnigramModel(std::move(vocab), std::move(scores), unk, file.byte_fallback);
  }

  using PostPiece = PostProcessor::Piece;
  PostProcessor::Template form;
  const auto mark = [&](bool wanted, std::int64_t id, std::int32_t type_id) {
    if (!wanted || id < 0 || static_cast<std::size_t>(id) >= file.pieces.size()) return;
    const PostPiece piece{PostPiece::Kind::tokens, type_id, {static_cast<TokenId>(id)}};
    if (type_id == 0) form.single.push_back(piece);
    form.pair.push_back(piece);
  };
  mark(add_bos, file.bos, 0);
  form.single.push_back({PostPiece::Kind::first, 0, {}});
  form.pair.push_back({PostPiece::Kind::first, 0, {}});
  mark(add_eos, file.eos, 0);
  mark(add_bos, file.bos, 1);
  form.pair.push_back({PostPiece::Kind::second, 1, {}});
  mark(add_eos, file.eos, 1);
  parts->post_processor.add(std::move(form));

  parts->decoder.add(decoders::Replace{Pattern(std::string(utf8::metaspace)), " "});
  parts->decoder.add(decoders::ByteFallback{});
  parts->decoder.add(decoders::Fuse{});
  if (file.add_dummy_prefix) parts->decoder.add(decoders::Strip{" ", 1, 0});
  return Tokenizer(std::move(parts));
}

}  // namespace

Tokenizer load_sentencepiece(std::string_view content, std::string_view name, SentencePieceOptions options) {
  SentencePieceFile file = read_sentencepiece(content, name);
  const bool add_bos = options.add_bos.value_or(file.is_bpe);
  const bool add_eos = options.add_eos.value_or(!file.is_bpe);
  return assemble(std::move(file), name, add_bos, add_eos);
}

Tokenizer load_llama2c(std::string_view content, std::string_view name) {
  // int32 longest token; then for each token: float score, int32 size, bytes.
  SentencePieceFile file;
  file.is_bpe = true;
  file.byte_fallback = true;
  file.remove_extra_whitespaces = false;
  std::size_t at = sizeof(std::int32_t);
  while (at < content.size()) {
    Piece piece;
    std::int32_t size = -1;
    if (content.size() - at >= sizeof piece.score + sizeof size) {
      std::memcpy(&piece.score, content.data() + at, sizeof piece.score);
      std::memcpy(&size, content.data() + at + sizeof piece.score, sizeof size);
      at += sizeof piece.score + sizeof size;
    }
    if (size < 0 || static_cast<std::size_t>(size) > content.size() - at || !std::isfinite(piece.score))
      throw FileError(
          fmt::format("{}: token {} is malformed; is this a llama2.c tokenizer.bin?", name, file.pieces.size()));
    piece.text = replace_all(content.substr(at, static_cast<std::size_t>(size)), " ", utf8::metaspace);
    at += static_cast<std::size_t>(size);
    if (!utf8::is_valid(piece.text))
      throw FileError(fmt::format("{}: token {} is not UTF-8", name, file.pieces.size()));
    // llama2.c writes the marks as "\n<s>\n".
    constexpr std::string_view marks[] = {"<unk>", "<s>", "</s>"};
    if (const std::size_t id = file.pieces.size(); id < std::size(marks)) {
      piece.text = marks[id];
      piece.kind = id == 0 ? Piece::unknown : Piece::control;
    } else if (fallback_byte(piece.text)) {
      piece.kind = Piece::byte;
    }
    file.pieces.push_back(std::move(piece));
  }
  if (file.pieces.empty()) throw FileError(fmt::format("{}: there are no tokens in this tokenizer.bin", name));
  return assemble(std::move(file), name, true, false);
}

}  // namespace jerboa
