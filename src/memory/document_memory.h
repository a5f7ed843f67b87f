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

/// Turns texts into vectors of length 1, whose dot products say how alike the texts are.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// What the user calls the model.
  virtual std::string name() const = 0;
  virtual std::int64_t dimensions() const = 0;
  /// The longest text, in tokens; what is beyond is not seen.
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

/// A chunk of a document that is like a query.
struct Passage {
  std::string document;
  std::int64_t begin = 0;  ///< where it begins in the document, in bytes
  std::string text;
  float score = 0;  ///< the cosine of the angle to the query
};

/// Documents in an SQLite file, as chunks with their vectors. Each change is a transaction: a process that is killed
/// leaves the file as it was before the document that it was adding. Several processes may use one file. The vectors
/// are those of one model; with another, every call fails with a UsageError that names both.
class DocumentMemory {
 public:
  enum class Access : std::uint8_t { existing, create };
  /// Throws FileError if there is no such file, or if it is not a memory.
  explicit DocumentMemory(const std::filesystem::path& path, Access access = Access::existing);
  ~DocumentMemory();
  DocumentMemory(DocumentMemory&&) noexcept;
  DocumentMemory& operator=(DocumentMemory&&) noexcept;

  /// The name of the model that the vectors were computed with; "" while there is none.
  std::string model() const;
  /// Adds a document, or replaces the one of this name. Returns false if it is there already, as it is. Throws
  /// NotTextError if the text is not UTF-8 or empty.
  bool add(const std::string& name, std::string_view text, Encoder& encoder);
  /// Returns whether there was one.
  bool remove(const std::string& name);
  /// By name.
  std::vector<Document> documents() const;
  /// The passages most like a text, the best first.
  std::vector<Passage> search(const std::string& query, std::int64_t count, Encoder& encoder);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace jerboa::memory
