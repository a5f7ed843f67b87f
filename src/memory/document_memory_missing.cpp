#include <jerboa/base/error.h>

#include "memory/document_memory.h"

// For builds without SQLite: no memory can be opened, so no other function can be called.
namespace jerboa::memory {

struct DocumentMemory::Parts {};

DocumentMemory::DocumentMemory(const std::filesystem::path&, Access) {
  throw UsageError("this build of jerboa has no memory: it was built without SQLite");
}
DocumentMemory::~DocumentMemory() = default;
DocumentMemory::DocumentMemory(DocumentMemory&&) noexcept = default;
DocumentMemory& DocumentMemory::operator=(DocumentMemory&&) noexcept = default;

std::string DocumentMemory::model() const { return ""; }
bool DocumentMemory::add(const std::string&, std::string_view, Encoder&) { return false; }
bool DocumentMemory::remove(const std::string&) { return false; }
std::vector<Document> DocumentMemory::documents() const { return {}; }
std::vector<Passage> DocumentMemory::search(const std::string&, std::int64_t, Encoder&) { return {}; }

}  // namespace jerboa::memory
