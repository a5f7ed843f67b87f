#include "memory/document_memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <optional>

#include <jerboa/base/error.h>

#include "memory/chunks.h"
#include "memory/sqlite.h"
#include "memory/vector_index.h"
#include "text/utf8.h"

namespace jerboa::memory {
namespace {

constexpr std::int64_t application_id = 0x4A455242;  // "JERB", which distinguishes a memory from other databases
constexpr std::int64_t format_version = 1;

// Vectors are in a table of their own, so that reading them does not read the texts.
constexpr const char* schema = R"sql(
PRAGMA application_id = 1246057026;
PRAGMA user_version = 1;
CREATE TABLE model (name TEXT NOT NULL, dimensions INTEGER NOT NULL, probe BLOB NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL, added TEXT NOT NULL);
CREATE TABLE chunks (id INTEGER PRIMARY KEY, document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
  begin INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX chunks_of_documents ON chunks (document);
CREATE TABLE vectors (chunk INTEGER PRIMARY KEY REFERENCES chunks ON DELETE CASCADE, vector BLOB NOT NULL);
)sql";
static_assert(application_id == 1246057026 && format_version == 1);

// A model is identified by its vector for this text. The same model on another device, or with quantised weights, gives
// almost the same vector; another model does not.
constexpr const char* probe_text = "The jerboa is a small rodent that hops through the deserts of Asia and Africa.";
constexpr float least_probe_similarity = 0.95f;

std::span<const std::byte> bytes_of(std::span<const float> values) { return std::as_bytes(values); }

std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

Database open_database(const std::filesystem::path& path, bool creates) {
  std::error_code ignored;
  if (!creates && !std::filesystem::exists(path, ignored))
    throw FileError(fmt::format("{}: there is no such memory; `jerboa memory add` creates it", path.string()));
  if (std::filesystem::is_directory(path, ignored))
    throw FileError(fmt::format("{}: a folder, not a memory", path.string()));
  if (creates && path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  return Database(path, creates ? Database::Access::create : Database::Access::existing);
}

bool is_memory(const Database& database) {
  const std::int64_t id = database.number("PRAGMA application_id");
  if (id == 0 && database.number("SELECT count(*) FROM sqlite_schema") == 0) return false;
  if (id != application_id) database.fail("an SQLite database, but not a memory");
  const std::int64_t version = database.number("PRAGMA user_version");
  if (version != format_version)
    database.fail(fmt::format("a memory of version {}, but this jerboa reads version {}", version, format_version));
  return true;
}

// A new file is empty until the first transaction, and several processes may find it in that state.
void prepare(Database& database) {
  if (!is_memory(database)) {
    database.run("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL");
    Transaction transaction(database);
    if (!is_memory(database)) database.run(schema);
    transaction.commit();
  }
  // FULL: committed data survives a loss of power even with a write-ahead log.
  database.run("PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL");
}

ChunkOptions chunk_options(const Encoder& encoder) {
  ChunkOptions options;
  const std::int64_t for_special_tokens = 8;
  options.tokens = std::clamp<std::int64_t>(encoder.context() - for_special_tokens, 1, options.tokens);
  options.overlap = options.tokens / 8;
  options.count = [&encoder](std::string_view text) { return encoder.count_tokens(text); };
  return options;
}

void check_text(const std::string& name, std::string_view text) {
  if (name.empty()) throw UsageError("a document needs a name");
  if (!utf8::is_valid(text) || text.find('\0') != std::string_view::npos)
    throw NotTextError(fmt::format("{}: not a text in UTF-8", name));
}

}  // namespace

struct DocumentMemory::Parts {
  Parts(const std::filesystem::path& path, bool creates) : database(open_database(path, creates)) { prepare(database); }

  // Checks that the memory's vectors are those of this model; an empty memory has none yet.
  void check(Encoder& encoder) {
    if (checked == &encoder) return;
    Statement model(database, "SELECT name, dimensions, probe FROM model");
    if (!model.next()) return;
    const std::string name = model.text(0);
    const std::int64_t dimensions = model.integer(1);
    if (dimensions != encoder.dimensions())
      throw UsageError(
          fmt::format("{}: made with {}, whose vectors have {} dimensions, but those of {} have {}; use the same model",
                      database.path().string(), name, dimensions, encoder.name(), encoder.dimensions()));
    const std::vector<float> probe = floats_of(model.bytes(2)), now = encoder.encode_query(probe_text);
    if (probe.size() != now.size()) database.fail("the memory is damaged; remove the file and add the documents again");
    if (std::inner_product(probe.begin(), probe.end(), now.begin(), 0.0f) < least_probe_similarity)
      throw UsageError(fmt::format("{}: made with {}, whose vectors are not those of {}; use the same model",
                                   database.path().string(), name, encoder.name()));
    checked = &encoder;
  }

  void remember_model(Encoder& encoder, std::span<const float> probe) const {
    if (database.number("SELECT count(*) FROM model") > 0) return;
    Statement(database, "INSERT INTO model VALUES (?, ?, ?)")
        .bind(1, encoder.name())
        .bind(2, encoder.dimensions())
        .bind(3, bytes_of(probe))
        .run();
  }

  bool has(const std::string& name, const std::vector<Chunk>& chunks) const {
    Statement stored(database,
                     "SELECT begin, text FROM chunks WHERE document = (SELECT id FROM documents WHERE name = ?) "
                     "ORDER BY id");
    stored.bind(1, name);
    for (const Chunk& chunk : chunks)
      if (!stored.next() || stored.integer(0) != static_cast<std::int64_t>(chunk.begin) || stored.text(1) != chunk.text)
        return false;
    return !stored.next();
  }

  void insert(const std::string& name, std::string_view text, const std::vector<Chunk>& chunks,
              std::span<const float> vectors, std::int64_t dimensions) const {
    Statement(database, "DELETE FROM documents WHERE name = ?").bind(1, name).run();
    Statement(database, "INSERT INTO documents (name, bytes, added) VALUES (?, ?, datetime('now'))")
        .bind(1, name)
        .bind(2, static_cast<std::int64_t>(text.size()))
        .run();
    const std::int64_t document = database.last_row();
    Statement chunk_row(database, "INSERT INTO chunks (document, begin, text) VALUES (?, ?, ?)");
    Statement vector_row(database, "INSERT INTO vectors VALUES (?, ?)");
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      chunk_row.bind(1, document).bind(2, static_cast<std::int64_t>(chunks[i].begin)).bind(3, chunks[i].text).run();
      const auto vector =
          vectors.subspan(i * static_cast<std::size_t>(dimensions), static_cast<std::size_t>(dimensions));
      vector_row.bind(1, database.last_row()).bind(2, bytes_of(vector)).run();
    }
  }

  // Reloads the vectors only if this process or another one has changed them.
  VectorIndex& vectors(std::int64_t dimensions) {
    const std::int64_t version = database.number("PRAGMA data_version"), changes = database.changes();
    if (index && version == index_version && changes == index_changes) return *index;
    index.emplace(dimensions);
    index->reserve(database.number("SELECT count(*) FROM vectors"));
    Statement rows(database, "SELECT chunk, vector FROM vectors");
    while (rows.next()) {
      const std::vector<float> vector = floats_of(rows.bytes(1));
      if (static_cast<std::int64_t>(vector.size()) != dimensions)
        database.fail("the memory is damaged; remove the file and add the documents again");
      index->add(rows.integer(0), vector);
    }
    index_version = version;
    index_changes = changes;
    return *index;
  }

  Database database;
  const Encoder* checked = nullptr;
  std::optional<VectorIndex> index;
  std::int64_t index_version = 0, index_changes = 0;
};

DocumentMemory::DocumentMemory(const std::filesystem::path& path, Access access)
    : parts_(std::make_unique<Parts>(path, access == Access::create)) {}
DocumentMemory::~DocumentMemory() = default;
DocumentMemory::DocumentMemory(DocumentMemory&&) noexcept = default;
DocumentMemory& DocumentMemory::operator=(DocumentMemory&&) noexcept = default;

std::string DocumentMemory::model() const {
  Statement model(parts_->database, "SELECT name FROM model");
  return model.next() ? model.text(0) : "";
}

bool DocumentMemory::add(const std::string& name, std::string_view text, Encoder& encoder) {
  check_text(name, text);
  parts_->check(encoder);
  const std::vector<Chunk> chunks = split_text(text, chunk_options(encoder));
  if (chunks.empty()) throw NotTextError(fmt::format("{}: contains no text", name));
  if (parts_->has(name, chunks)) return false;
  std::vector<std::string> texts;
  for (const Chunk& chunk : chunks) texts.emplace_back(chunk.text);
  const std::vector<float> vectors = encoder.encode_documents(texts), probe = encoder.encode_query(probe_text);
  Transaction transaction(parts_->database);
  parts_->check(encoder);  // another process may have added the first document meanwhile
  parts_->remember_model(encoder, probe);
  parts_->insert(name, text, chunks, vectors, encoder.dimensions());
  transaction.commit();
  return true;
}

bool DocumentMemory::remove(const std::string& name) {
  Transaction transaction(parts_->database);
  const std::int64_t before = parts_->database.changes();
  Statement(parts_->database, "DELETE FROM documents WHERE name = ?").bind(1, name).run();
  const bool was_there = parts_->database.changes() > before;
  if (parts_->database.number("SELECT count(*) FROM documents") == 0) parts_->database.run("DELETE FROM model");
  transaction.commit();
  if (was_there) parts_->checked = nullptr;
  return was_there;
}

std::vector<Document> DocumentMemory::documents() const {
  Statement rows(parts_->database,
                 "SELECT name, bytes, (SELECT count(*) FROM chunks WHERE document = documents.id), added "
                 "FROM documents ORDER BY name");
  std::vector<Document> documents;
  while (rows.next()) documents.push_back({rows.text(0), rows.integer(1), rows.integer(2), rows.text(3)});
  return documents;
}

std::vector<Passage> DocumentMemory::search(const std::string& query, std::int64_t count, Encoder& encoder) {
  parts_->check(encoder);
  std::vector<Passage> passages;
  for (const Neighbour& near : parts_->vectors(encoder.dimensions()).nearest(encoder.encode_query(query), count)) {
    Statement found(
        parts_->database,
        "SELECT name, begin, text FROM chunks JOIN documents ON documents.id = document WHERE chunks.id = ?");
    if (found.bind(1, near.id).next()) passages.push_back({found.text(0), found.integer(1), found.text(2), near.score});
  }
  return passages;
}

}  // namespace jerboa::memory
