#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/error.h>

namespace jerboa::memory {

/// Turns texts into vectors of length 1, whose dot products measure similarity.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// The user's name for the model.
  virtual std::string name() const = 0;
  virtual std::int64_t dimensions() const = 0;
  /// The longest text, in tokens; the rest of a longer one is ignored.
  virtual std::int64_t context() const = 0;
  virtual std::int64_t count_tokens(std::string_view text) const = 0;
  /// f32[texts, dimensions]
  virtual std::vector<float> encode_documents(std::span<const std::string> texts) = 0;
  virtual std::vector<float> encode_query(const std::string& text) = 0;
};

/// A document that holds no text.
class NotTextError : public UsageError {
 public:
  using UsageError::UsageError;
};

struct Document {
  std::string name;
  std::int64_t bytes = 0, chunks = 0;
  std::string added;  ///< date and time, in UTC
};

/// A chunk of a document that matches a query.
struct Passage {
  std::string document;
  std::int64_t begin = 0;  ///< where it begins in the document, in bytes
  std::string text;
  float score = 0;  ///< cosine similarity to the query
};

/// Documents in an SQLite file, stored as chunks with their vectors. Each change is a transaction: killing the process
/// leaves the file as it was before the current document. Several processes may use one file. All vectors come from one
/// model; with another, every call throws UsageError that names both.
class DocumentMemory {
 public:
  enum class Access : std::uint8_t { existing, create };
  /// Throws FileError if the file does not exist or is not a memory.
  explicit DocumentMemory(const std::filesystem::path& path, Access access = Access::existing);
  ~DocumentMemory();
  DocumentMemory(DocumentMemory&&) noexcept;
  DocumentMemory& operator=(DocumentMemory&&) noexcept;

  /// The name of the model that computed the vectors; "" while there are none.
  std::string model() const;
  /// Adds a document, or replaces the one of this name. Returns false if it exists with the same content. Throws
  /// NotTextError if the text is not UTF-8 or empty.
  bool add(const std::string& name, std::string_view text, Encoder& encoder);
  /// Returns whether the document existed.
  bool remove(const std::string& name);
  /// Sorted by name.
  std::vector<Document> documents() const;
  /// The passages most similar to a query, best first.
  std::vector<Passage> search(const std::string& query, std::int64_t count, Encoder& encoder);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace jerboa::memory
