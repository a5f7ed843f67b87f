#include "memory/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <jerboa/base/error.h>

namespace jerboa::memory {
namespace {

constexpr int busy_milliseconds = 10'000;

std::string problem_of(sqlite3* handle) {
  switch (sqlite3_errcode(handle)) {
    case SQLITE_NOTADB: return "not a memory: it is not an SQLite database";
    case SQLITE_CORRUPT: return "the memory is damaged; remove the file and add the documents again";
    case SQLITE_FULL: return "the disk is full; nothing was changed";
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return "another program is writing to it; try again later";
    case SQLITE_READONLY: return "it cannot be written to";
    case SQLITE_CANTOPEN: return "cannot be opened; does its folder exist?";
    default: return sqlite3_errmsg(handle);
  }
}

}  // namespace

Statement::Statement(const Database& database, const char* sql)
    : database_(database), statement_(nullptr, sqlite3_finalize) {
  sqlite3_stmt* made = nullptr;
  if (sqlite3_prepare_v2(database.handle(), sql, -1, &made, nullptr) != SQLITE_OK) database.fail();
  statement_.reset(made);
}

Statement& Statement::bind(int parameter, std::int64_t value) {
  if (sqlite3_bind_int64(statement_.get(), parameter, value) != SQLITE_OK) database_.fail();
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view text) {
  if (sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8) !=
      SQLITE_OK)
    database_.fail();
  return *this;
}

Statement& Statement::bind(int parameter, std::span<const std::byte> bytes) {
  if (sqlite3_bind_blob64(statement_.get(), parameter, bytes.data(), bytes.size(), SQLITE_TRANSIENT) != SQLITE_OK)
    database_.fail();
  return *this;
}

bool Statement::next() {
  const int code = sqlite3_step(statement_.get());
  if (code != SQLITE_ROW && code != SQLITE_DONE) database_.fail();
  return code == SQLITE_ROW;
}

void Statement::run() {
  while (next()) {
  }
  sqlite3_reset(statement_.get());
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
  return text == nullptr ? std::string()
                         : std::string(text, static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

std::span<const std::byte> Statement::bytes(int column) const {
  const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_.get(), column));
  return {data, data == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Database::Database(std::filesystem::path path, Access access)
    : path_(std::move(path)), handle_(nullptr, sqlite3_close) {
  const int flags = SQLITE_OPEN_READWRITE | (access == Access::create ? SQLITE_OPEN_CREATE : 0);
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path_.c_str(), &opened, flags, nullptr);
  handle_.reset(opened);
  if (opened == nullptr) throw FileError(fmt::format("{}: there is not enough memory to open it", path_.string()));
  if (code != SQLITE_OK) fail();
  sqlite3_busy_timeout(opened, busy_milliseconds);
}

void Database::run(const char* sql) {
  if (sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) fail();
}

std::int64_t Database::number(const char* sql) const {
  Statement statement(*this, sql);
  return statement.next() ? statement.integer(0) : 0;
}

std::int64_t Database::last_row() const { return sqlite3_last_insert_rowid(handle_.get()); }

std::int64_t Database::changes() const { return sqlite3_total_changes64(handle_.get()); }

void Database::fail() const { fail(problem_of(handle_.get())); }

void Database::fail(const std::string& problem) const {
  throw FileError(fmt::format("{}: {}", path_.string(), problem));
}

Transaction::Transaction(Database& database) : database_(database) { database_.run("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (is_open_) sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  database_.run("COMMIT");
  is_open_ = false;
}

}  // namespace jerboa::memory
