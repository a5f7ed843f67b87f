#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace jerboa::memory {

class Database;

/// A prepared statement. Parameters are numbered from 1 and columns from 0, as in SQLite.
class Statement {
 public:
  Statement(const Database& database, const char* sql);

  Statement& bind(int parameter, std::int64_t value);
  Statement& bind(int parameter, std::string_view text);
  Statement& bind(int parameter, std::span<const std::byte> bytes);
  /// Steps to the next row; returns whether there is one.
  bool next();
  /// Runs a statement that returns no rows, and resets it for further bindings.
  void run();

  std::int64_t integer(int column) const;
  std::string text(int column) const;
  /// Valid until the next step.
  std::span<const std::byte> bytes(int column) const;

 private:
  const Database& database_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_;
};

/// An SQLite database. Failures throw FileError that names the file.
class Database {
 public:
  enum class Access : std::uint8_t { existing, create };
  Database(std::filesystem::path path, Access access);

  void run(const char* sql);
  std::int64_t number(const char* sql) const;  ///< runs a query that returns a single value
  std::int64_t last_row() const;
  std::int64_t changes() const;  ///< rows changed through this connection

  sqlite3* handle() const { return handle_.get(); }
  const std::filesystem::path& path() const { return path_; }
  [[noreturn]] void fail() const;
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
};

/// A transaction. It is rolled back unless commit() is called.
class Transaction {
 public:
  explicit Transaction(Database& database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool is_open_ = true;
};

}  // namespace jerboa::memory
